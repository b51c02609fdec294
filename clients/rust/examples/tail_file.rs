//! Follows a file and pushes each line that is added to it: tail_file FILE [SOCKET]. A line that got no ack is pushed again, so none is lost
//! while the program runs; it may be delivered twice.

use std::fs::File;
use std::io::{self, BufRead, BufReader};
use std::path::PathBuf;
use std::thread::sleep;
use std::time::Duration;

use weir::{default_path, Client, Durability};

fn main() -> io::Result<()> {
    let mut args = std::env::args_os().skip(1);
    let Some(file) = args.next() else {
        eprintln!("usage: tail_file FILE [SOCKET]");
        std::process::exit(2);
    };
    let mut client = Client::new(args.next().map_or_else(default_path, PathBuf::from));
    let mut input = BufReader::new(File::open(file)?);
    let mut line = Vec::new();
    loop {
        if input.read_until(b'\n', &mut line)? == 0 || line.last() != Some(&b'\n') {
            sleep(Duration::from_millis(200)); // the rest of the line is not there yet
            continue;
        }
        line.pop();
        while !line.is_empty() {
            match client.push(Durability::Durable, &line) {
                Ok(()) => break,
                Err(e) if e.may_retry() => {
                    eprintln!("{e}; again in a second");
                    sleep(Duration::from_secs(1));
                }
                Err(e) => {
                    eprintln!("left out: {e}");
                    break;
                }
            }
        }
        line.clear();
    }
}
