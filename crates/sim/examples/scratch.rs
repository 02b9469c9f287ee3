use std::time::Instant;
use tributary_sim::{fabric::Vertex, measure::*, preset};
fn main() {
    let args: Vec<String> = std::env::args().collect();
    let hosts: u32 = args[1].parse().unwrap();
    let mc = args[2] == "mc";
    let ops: u32 = args[3].parse().unwrap();
    let over = match hosts {
        128 => "down = [16, 8]\nup = [1, 16]",
        1024 => "down = [32, 32]\nup = [1, 32]",
        _ => "down = [40, 50, 50]\nup = [1, 40, 40]",
    };
    let text =
        format!("name = \"x\"\nbase = \"edr-sharp\"\n[fabric]\nkind = \"fat-tree\"\n{over}\n");
    let preset = preset::read(&text).unwrap();
    let t = Instant::now();
    let mut run = TreeBenchmark {
        hosts: (0..hosts).map(Vertex).collect(),
        communicators: 1,
        osos: 16,
        osos_per_job: None,
        multicast: mc,
        seed: None,
    }
    .set_up(&preset)
    .unwrap();
    let setup = t.elapsed();
    let before = run.system().world.events();
    let mut best = f64::MAX;
    for _ in 0..ops {
        let t = Instant::now();
        run.allreduce(8, 1).unwrap();
        best = best.min(t.elapsed().as_secs_f64());
    }
    let ev = (run.system().world.events() - before) as f64 / f64::from(ops);
    println!(
        "{hosts} setup {setup:?} best {:.4} ms, {ev} events, {:.2} M/s",
        best * 1e3,
        ev / best / 1e6
    );
}
