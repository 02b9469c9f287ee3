use tributary_sim::figure::{self, *};
fn main() {
    let args: Vec<String> = std::env::args().collect();
    let effort = Effort { seed: 1, operations: args[1].parse().unwrap() };
    for name in &args[2..] {
        let t = std::time::Instant::now();
        match figure::make(name, &effort, &Progress::default()) {
            Ok(f) => {
                println!("== {name} {:.1} s\n{}", t.elapsed().as_secs_f64(), f.table.csv());
                if let Some(c) = f.chart {
                    std::fs::write(format!("/tmp/s/sim/{name}.svg"), c.svg(&f.title).unwrap())
                        .unwrap();
                }
            }
            Err(e) => println!("== {name} FAILED {e}"),
        }
    }
}
