//! The client and the producer against a server that misbehaves: what they say of each answer, and that a connection is used no more
//! after anything that leaves doubt.

use std::io::{Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use weir::codec::{self, Coordinate, Durability, Type};
use weir::{Client, Error, Producer, ProducerOptions};

/// What the server does with a request.
#[derive(Clone)]
enum Answer {
    Bytes(Vec<u8>),
    /// Then the connection is closed.
    Last(Vec<u8>),
    /// Sent only when the next request comes.
    Late(Vec<u8>),
}

fn frame(kind: Type, payload: &[u8]) -> Vec<u8> {
    let mut b = Vec::new();
    codec::append_frame(&mut b, kind, Durability::Durable, payload);
    b
}

fn ack() -> Answer {
    Answer::Bytes(frame(Type::Ack, b""))
}

fn nack(reason: u8) -> Answer {
    let payload: &[u8] = if reason == codec::VERSION_MISMATCH { &[reason, 9] } else { &[reason] };
    let bytes = frame(Type::Nack, payload);
    if reason == codec::INTERNAL_ERROR {
        Answer::Bytes(bytes)
    } else {
        Answer::Last(bytes)
    }
}

struct Server {
    path: PathBuf,
    connections: Arc<AtomicUsize>,
    thread: Option<JoinHandle<()>>,
}

fn read_request(s: &mut UnixStream) -> bool {
    let mut head = [0; codec::HEADER_LEN];
    if s.read_exact(&mut head).is_err() {
        return false;
    }
    let Ok(h) = codec::parse_header(&head) else { return false };
    s.read_exact(&mut vec![0; h.payload_len + 4]).is_ok()
}

impl Server {
    fn start(answers: Vec<Answer>) -> Server {
        static NUMBER: AtomicUsize = AtomicUsize::new(0);
        let path = std::env::temp_dir().join(format!("weir-rust-{}-{}.sock", std::process::id(), NUMBER.fetch_add(1, Ordering::Relaxed)));
        let _ = std::fs::remove_file(&path);
        let listener = UnixListener::bind(&path).unwrap();
        let connections = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&connections);
        let thread = thread::spawn(move || {
            let mut answers = answers.into_iter().peekable();
            while answers.peek().is_some() {
                let (mut s, _) = listener.accept().unwrap();
                count.fetch_add(1, Ordering::Relaxed);
                while answers.peek().is_some() && read_request(&mut s) {
                    match answers.next().unwrap() {
                        Answer::Bytes(b) => drop(s.write_all(&b)),
                        Answer::Last(b) => {
                            drop(s.write_all(&b));
                            break;
                        }
                        Answer::Late(b) => {
                            if !read_request(&mut s) {
                                break;
                            }
                            drop(s.write_all(&b));
                        }
                    }
                }
            }
        });
        Server { path, connections, thread: Some(thread) }
    }

    fn client(&self) -> Client {
        Client::new(&self.path).with_timeout(Duration::from_millis(300))
    }

    fn stop(&mut self) -> usize {
        self.thread.take().unwrap().join().unwrap();
        let _ = std::fs::remove_file(&self.path);
        self.connections.load(Ordering::Relaxed)
    }
}

/// Pushes once against an answer, and once more against an Ack.
fn one(answer: Answer) -> (Error, usize) {
    let mut server = Server::start(vec![answer, ack()]);
    let mut client = server.client();
    let got = client.push(Durability::Durable, b"x").expect_err("the first push");
    client.push(Durability::Durable, b"y").expect("the push after it");
    drop(client);
    (got, server.stop())
}

#[test]
fn every_nack_reason_surfaces() {
    for reason in 1..=255u8 {
        let (e, connections) = one(nack(reason));
        match &e {
            Error::Transient => assert_eq!((reason, connections), (codec::INTERNAL_ERROR, 1)),
            Error::Refused { reason: got, daemon_version } => {
                assert_eq!((*got, connections), (reason, 2));
                assert_eq!(*daemon_version, (reason == codec::VERSION_MISMATCH).then_some(9));
            }
            e => panic!("reason {reason}: {e}"),
        }
        assert_eq!(e.may_retry(), reason == codec::INTERNAL_ERROR);
        if reason == codec::VERSION_MISMATCH {
            assert!(e.to_string().contains("version 9") && e.to_string().contains("version 1"), "{e}");
        }
        if reason == 0x0a || reason > 0x0b {
            assert!(e.to_string().contains(&format!("Unassigned (0x{reason:02x})")), "{e}");
        }
    }
}

#[test]
fn answers_that_make_no_sense_leave_the_record_unknown() {
    let mut other_version = frame(Type::Ack, b"");
    other_version[4] = 2;
    let mut bad_crc = frame(Type::Nack, &[6]);
    *bad_crc.last_mut().unwrap() ^= 1;
    let huge = codec::header(Type::Ack, Durability::Durable, codec::MAX_PAYLOAD).to_vec();
    for (name, answer) in [
        ("garbage", Answer::Last(vec![b'g'; 40])),
        ("half a reply", Answer::Last(frame(Type::Ack, b"")[..7].to_vec())),
        ("no reply", Answer::Last(Vec::new())),
        ("silence", Answer::Bytes(Vec::new())),
        ("a late reply", Answer::Late(frame(Type::Ack, b""))),
        ("wrong type", Answer::Bytes(frame(Type::HealthCheckResponse, b""))),
        ("tracked ack to a push", Answer::Bytes(frame(Type::AckTracked, &[0; 60]))),
        ("ack with a payload", Answer::Bytes(frame(Type::Ack, &[0]))),
        ("nack too long", Answer::Bytes(frame(Type::Nack, &[0; 3]))),
        ("nack without a reason", Answer::Bytes(frame(Type::Nack, &[]))),
        ("a request", Answer::Bytes(frame(Type::Push, b"x"))),
        ("bad checksum", Answer::Bytes(bad_crc)),
        ("other version", Answer::Bytes(other_version)),
        ("announces 16 MiB", Answer::Bytes(huge)),
    ] {
        let (e, connections) = one(answer);
        assert!(matches!(e, Error::Unknown { .. }), "{name}: {e:?}");
        assert!(e.may_retry(), "{name}");
        assert_eq!(connections, 2, "{name}");
    }
}

#[test]
fn arguments_are_checked_before_anything_is_sent() {
    let mut client = Client::new("/nowhere/weir.sock");
    let large = vec![0; codec::MAX_PAYLOAD + 1];
    for e in [
        client.push(Durability::Durable, b"").unwrap_err(),
        client.push(Durability::Durable, &large).unwrap_err(),
        client.push_tracked(Durability::Durable, b"").unwrap_err(),
        client.push_batch::<&[u8]>(Durability::Durable, &[]).unwrap_err(),
        client.push_batch(Durability::Durable, &[b"" as &[u8]]).unwrap_err(),
        client.push_batch(Durability::Durable, &vec![b"x"; codec::MAX_BATCH_RECORDS + 1]).unwrap_err(),
        client.push_batch(Durability::Durable, &[&large[1..], &large[1..]]).unwrap_err(),
    ] {
        assert!(matches!(e, Error::Invalid(_)) && !e.may_retry(), "{e}");
    }
    assert!(matches!(client.health().unwrap_err(), Error::Unknown { source: Some(_), .. }));
}

#[test]
fn batch_answers_are_checked_against_what_was_sent() {
    let records = [b"record"; 9];
    let ok = |payload: &[u8]| Answer::Bytes(frame(Type::AckBatch, payload));
    let mut server = Server::start(vec![
        ok(&[1, 9, 0, 0x0d, 0x01]),
        ok(&[1, 8, 0, 0x0d]),
        ok(&[1, 9, 0, 0x0d, 0x03]),
        ok(&[1, 9, 0, 0x0d]),
        ok(&[2, 9, 0, 0x0d, 0x01]),
        nack(0x0b),
    ]);
    let mut client = server.client();
    let acked = client.push_batch(Durability::Durable, &records).unwrap();
    assert_eq!(acked, [true, false, true, true, false, false, false, false, true]);
    for _ in 0..4 {
        assert!(matches!(client.push_batch(Durability::Durable, &records), Err(Error::Unknown { .. })));
    }
    assert!(matches!(client.push_batch(Durability::Durable, &records), Err(Error::Refused { reason: 0x0b, .. })));
    drop(client);
    assert_eq!(server.stop(), 5);
}

#[test]
fn coordinates_are_checked_against_the_record() {
    let answer = |id| {
        let mut payload = Vec::new();
        codec::append_coordinate(&mut payload, &Coordinate { segment: "seg/a".into(), index: 7, id });
        payload
    };
    let good = answer(codec::record_id("seg/a", 7, b"hello"));
    let other = answer([7; 32]);
    let mut server = Server::start(vec![
        Answer::Bytes(frame(Type::AckTracked, &good)),
        Answer::Bytes(frame(Type::AckTracked, &other)),
        Answer::Bytes(frame(Type::AckTracked, &good[..42])),
    ]);
    let mut client = server.client();
    let at = client.push_tracked(Durability::Durable, b"hello").unwrap();
    assert_eq!((at.segment.as_str(), at.index), ("seg/a", 7));
    for _ in 0..2 {
        assert!(matches!(client.push_tracked(Durability::Durable, b"hello"), Err(Error::Unknown { .. })));
    }
    drop(client);
    server.stop();
}

/// What became of one record, in a word.
fn word(r: &Result<(), Error>) -> &'static str {
    match r {
        Ok(()) => "acked",
        Err(Error::Refused { .. }) => "refused",
        Err(Error::Transient) => "transient",
        Err(Error::Unknown { .. }) => "unknown",
        Err(_) => "invalid",
    }
}

fn producer(server: &Server) -> (Producer<usize>, Arc<Mutex<Vec<(usize, &'static str)>>>) {
    let told = Arc::new(Mutex::new(Vec::new()));
    let book = Arc::clone(&told);
    let mut options = ProducerOptions::new(&server.path);
    options.window = 32;
    options.timeout = Duration::from_millis(500);
    options.max_backoff = Duration::from_millis(60);
    (Producer::new(options, move |o| book.lock().unwrap().push((o.tag, word(&o.result)))), told)
}

#[test]
fn a_producer_tells_each_outcome_once_and_in_order() {
    let garbage = Answer::Last(vec![b'g'; 16]);
    let mut server = Server::start(vec![ack(), ack(), nack(codec::INTERNAL_ERROR), ack(), nack(4), ack(), ack(), garbage, Answer::Bytes(Vec::new()), ack()]);
    let want = ["acked", "acked", "transient", "acked", "refused", "acked", "acked", "unknown", "unknown", "acked"];
    let (mut p, told) = producer(&server);
    assert!(matches!(p.send(b"", 99), Err(Error::Invalid(_))));
    for i in 0..want.len() {
        p.send(b"payload", i).unwrap();
        if i >= 3 {
            p.flush(); // so that each answer belongs to one record
        }
    }
    drop(p);
    assert_eq!(*told.lock().unwrap(), want.into_iter().enumerate().collect::<Vec<_>>());
    assert_eq!(server.stop(), 4);
}

#[test]
fn a_lost_connection_leaves_its_window_unknown() {
    let mut server = Server::start(vec![Answer::Last(frame(Type::Ack, b""))]);
    let (mut p, told) = producer(&server);
    for i in 0..20 {
        p.send(b"payload", i).unwrap();
    }
    p.flush();
    server.stop();
    p.send(b"nobody listens", 20).unwrap();
    drop(p);
    let told = told.lock().unwrap();
    assert_eq!(told.len(), 21);
    for (i, (tag, outcome)) in told.iter().enumerate() {
        assert_eq!((*tag, *outcome), (i, if i == 0 { "acked" } else { "unknown" }));
    }
}
