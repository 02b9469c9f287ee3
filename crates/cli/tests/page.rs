//! The manager's page: whom it lets in, and that it tells what aggregators do. tests/page looks at it with a browser.

mod support;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;

use support::{Daemons, run};

/// Sends a request, and returns its answer still to be read.
fn call(daemons: &Daemons, line: &str, cookie: &str) -> BufReader<TcpStream> {
    let mut stream = TcpStream::connect(&daemons.manager.address).expect("the manager listens");
    let close = "Host: 127.0.0.1\r\nConnection: close\r\nContent-Length: 0";
    write!(stream, "{line} HTTP/1.1\r\n{close}\r\nCookie: {cookie}\r\n\r\n").expect("it reads");
    BufReader::new(stream)
}

/// A whole answer.
fn ask(daemons: &Daemons, line: &str, cookie: &str) -> String {
    let mut answer = String::new();
    call(daemons, line, cookie).read_to_string(&mut answer).expect("it answers in text");
    answer
}

fn status_of(answer: &str) -> &str {
    answer.split(' ').nth(1).unwrap_or_default()
}

/// What `tributary open` prints, as a request.
fn opening(daemons: &Daemons) -> String {
    let ended = run(daemons.tributary().arg("open"));
    assert!(ended.status.success(), "{}", ended.stderr);
    let link = ended.stdout.trim().strip_prefix("http://").expect("the manager is on loopback");
    format!("GET {}", link.strip_prefix(&daemons.manager.address).expect("its own address"))
}

/// The cookie that a link gives.
fn cookie(daemons: &Daemons) -> String {
    let answer = ask(daemons, &opening(daemons), "");
    assert_eq!(status_of(&answer), "303", "{answer}");
    let header = answer.lines().find_map(|line| line.strip_prefix("set-cookie: "));
    header.and_then(|header| header.split(';').next()).expect("a link gives a cookie").to_owned()
}

#[test]
fn a_link_opens_the_page_once_and_the_page_only() {
    let daemons = Daemons::start(&[]);
    let link = opening(&daemons);
    for closed in ["GET /", "GET /page/main.js", "GET /v1/watch", "GET /open", "GET /open?code=0"] {
        let answer = ask(&daemons, closed, "tributary=0");
        assert_eq!(status_of(&answer), "401", "{closed}: {answer}");
    }
    assert_eq!(status_of(&ask(&daemons, &link, "")), "303");
    assert_eq!(status_of(&ask(&daemons, &link, "")), "401", "a second time");

    let cookie = cookie(&daemons);
    let page = ask(&daemons, "GET /", &cookie);
    assert_eq!(status_of(&page), "200", "{page}");
    for header in ["content-security-policy: default-src 'none'", "x-content-type-options: nosniff"]
    {
        assert!(page.contains(header), "{page}");
    }
    // Every file that the page names is there.
    for file in page.split('"').filter(|word| word.starts_with("/page/")) {
        assert_eq!(status_of(&ask(&daemons, &format!("GET {file}"), &cookie)), "200", "{file}");
    }
    for call in
        ["GET /v1/status", "GET /metrics", "POST /v1/drain", "POST /v1/jobs", "POST /v1/page/codes"]
    {
        assert_eq!(status_of(&ask(&daemons, call, &cookie)), "401", "{call}");
    }
}

#[test]
fn the_stream_tells_what_nodes_do() {
    let daemons = Daemons::start(&["a", "b"]);
    let line = "bench allreduce --procs 2 --hosts 2 --sizes 8 --iters 50 --json";
    let bench = run(daemons.tributary().args(line.split(' ')));
    assert!(bench.status.success(), "{}", bench.stderr);

    let mut events = call(&daemons, "GET /v1/watch", &cookie(&daemons)).lines();
    let mut next = |name: &str| -> serde_json::Value {
        let head = format!("event: {name}");
        events
            .by_ref()
            .find(|line| line.as_ref().is_ok_and(|line| *line == head))
            .unwrap()
            .unwrap();
        let data = events.next().unwrap().unwrap();
        serde_json::from_str(data.strip_prefix("data: ").unwrap()).unwrap()
    };
    assert_eq!(support::list(&next("fabric"), "nodes").len(), 2);
    // Aggregators tell once a second; 50 operations have a contribution of each host at least.
    support::await_that("the counts of the benchmark arrive", || {
        let counts = next("counts");
        let nodes = counts["nodes"].as_object().unwrap();
        let sum: u64 = nodes.values().map(|node| node["contributions"].as_u64().unwrap()).sum();
        (nodes.len() == 2 && sum >= 100).then_some(())
    });
}
