//! The client against the daemon that was built (WEIR_BIN): it is killed and started again, and the ledger has to add up.

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use weir::{Client, Durability, Producer, ProducerOptions};

const KILLS: usize = 5;
const RECORDS: usize = 20_000;
const LIMIT: Duration = Duration::from_secs(120);

fn weir() -> PathBuf {
    std::env::var_os("WEIR_BIN").map_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("../../bin/weir"), PathBuf::from)
}

fn until(what: &str, mut done: impl FnMut() -> bool) {
    let began = Instant::now();
    while !done() {
        assert!(began.elapsed() < LIMIT, "gave up waiting: {what}");
        thread::sleep(Duration::from_millis(5));
    }
}

struct Daemon {
    data: PathBuf,
    sink: &'static str,
    child: Child,
}

fn spawn(data: &Path, sink: &str) -> Child {
    let args = ["--admin", "", "--log-level", "error", "--sink", sink];
    Command::new(weir()).arg("run").arg("--data-dir").arg(data).args(args).stdin(Stdio::null()).spawn().expect("start weir (make build)")
}

impl Daemon {
    fn start(name: &str, sink: &'static str) -> Daemon {
        let data = std::env::temp_dir().join(format!("weir-rust-{}-{name}", std::process::id()));
        let _ = std::fs::remove_dir_all(&data);
        let daemon = Daemon { child: spawn(&data, sink), data, sink };
        daemon.await_answer();
        daemon
    }

    fn socket(&self) -> PathBuf {
        self.data.join("weir.sock")
    }

    fn await_answer(&self) {
        until("the daemon to answer", || Client::new(self.socket()).health().is_ok());
    }

    fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
        self.child = spawn(&self.data, self.sink);
        self.await_answer();
    }

    fn backlog(&self) -> u64 {
        let out = Command::new(weir()).args(["status", "--json", "--admin-socket"]).arg(self.data.join("admin.sock")).output().unwrap();
        let text = String::from_utf8(out.stdout).unwrap();
        let (_, rest) = text.split_once("\"backlog_records\": ").expect("status");
        rest.split(|c: char| !c.is_ascii_digit()).next().unwrap().parse().unwrap()
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = std::fs::remove_dir_all(&self.data);
    }
}

/// Pushes numbered records in every way until it is told to stop, and books what was acked.
fn push(socket: PathBuf, next: &AtomicUsize, acked: &Arc<Mutex<Vec<usize>>>, stop: &AtomicBool) {
    let book = Arc::clone(acked);
    let mut options = ProducerOptions::new(&socket);
    options.max_backoff = Duration::from_millis(100);
    let mut producer = Producer::new(options, move |o: weir::Outcome<usize>| {
        if o.result.is_ok() {
            book.lock().unwrap().push(o.tag);
        }
    });
    let mut client = Client::new(&socket).with_timeout(Duration::from_secs(5));
    let text = |n: usize| format!("rust record {n}").into_bytes();
    while !stop.load(Ordering::Relaxed) {
        let n = next.fetch_add(100, Ordering::Relaxed);
        let failed = match n / 100 % 4 {
            0 => client.push(Durability::Buffered, &text(n)).map(|()| acked.lock().unwrap().push(n)).is_err(),
            1 => client.push_tracked(Durability::Durable, &text(n)).map(|_| acked.lock().unwrap().push(n)).is_err(),
            2 => match client.push_batch(Durability::Durable, &(n..n + 100).map(text).collect::<Vec<_>>()) {
                Ok(set) => {
                    acked.lock().unwrap().extend((n..n + 100).zip(set).filter(|(_, ok)| *ok).map(|(n, _)| n));
                    false
                }
                Err(_) => true,
            },
            _ => {
                (n..n + 100).for_each(|n| producer.send(&text(n), n).unwrap());
                false
            }
        };
        if failed {
            thread::sleep(Duration::from_millis(2));
        }
    }
}

#[test]
fn whatever_is_acked_arrives_though_the_daemon_is_killed() {
    let mut daemon = Daemon::start("ledger", "file");
    let (next, stop) = (AtomicUsize::new(0), AtomicBool::new(false));
    let acked = Arc::new(Mutex::new(Vec::new()));
    thread::scope(|s| {
        let socket = daemon.socket();
        s.spawn(|| push(socket, &next, &acked, &stop));
        for kill in 1..=KILLS {
            until("acks", || acked.lock().unwrap().len() >= RECORDS * kill / (KILLS + 1));
            daemon.kill();
        }
        until("acks", || acked.lock().unwrap().len() >= RECORDS);
        stop.store(true, Ordering::Relaxed);
    });
    until("the deliveries", || daemon.backlog() == 0);
    let text = std::fs::read_to_string(daemon.data.join("delivered.jsonl")).unwrap();
    let arrived: HashSet<usize> = text
        .lines()
        .filter_map(|l| l.split_once("\"payload\":\"rust record ")?.1.split_once('"')?.0.parse().ok())
        .collect();
    let acked = acked.lock().unwrap();
    let lost: Vec<_> = acked.iter().filter(|n| !arrived.contains(n)).collect();
    println!("ledger: {KILLS} kills, {} acked, {} delivered, {} lost", acked.len(), arrived.len(), lost.len());
    assert!(lost.is_empty(), "lost: {:?}", &lost[..lost.len().min(5)]);
}

#[test]
fn speed() {
    const TIME: Duration = Duration::from_millis(600);
    let daemon = Daemon::start("speed", "discard");
    let payload = [b'x'; 256];
    let mut client = Client::new(daemon.socket());
    let rate = |n: usize, began: Instant| (n as f64 / began.elapsed().as_secs_f64()) as u64;
    let (mut n, began) = (0, Instant::now());
    while began.elapsed() < TIME {
        client.push(Durability::Durable, &payload).unwrap();
        n += 1;
    }
    let one = rate(n, began);
    let acked = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&acked);
    let mut producer = Producer::new(ProducerOptions::new(daemon.socket()), move |o: weir::Outcome<()>| {
        o.result.unwrap();
        count.fetch_add(1, Ordering::Relaxed);
    });
    let began = Instant::now();
    while began.elapsed() < TIME {
        producer.send(&payload, ()).unwrap();
    }
    producer.flush();
    let many = rate(acked.load(Ordering::Relaxed), began);
    let batch = vec![&payload[..]; 1000];
    let (mut n, began) = (0, Instant::now());
    while began.elapsed() < TIME {
        n += client.push_batch(Durability::Durable, &batch).unwrap().iter().filter(|ok| **ok).count();
    }
    println!("one at a time {one} records/s, 256 in flight {many}, batches of 1,000 {}", rate(n, began));
}
