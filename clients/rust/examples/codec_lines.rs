//! The codec behind the line protocol of the conformance runner (conformance/README.md).

use std::io::{self, BufRead, Write};

use weir::codec::{self, Coordinate, Durability, Type, Verdict};

fn unhex(s: &str) -> Vec<u8> {
    if s == "-" {
        return Vec::new();
    }
    (0..s.len()).step_by(2).map(|i| u8::from_str_radix(&s[i..i + 2], 16).expect("hex")).collect()
}

fn hex(b: &[u8]) -> String {
    if b.is_empty() {
        return "-".into();
    }
    b.iter().map(|b| format!("{b:02x}")).collect()
}

fn number<T: std::str::FromStr>(s: &str) -> T
where
    T::Err: std::fmt::Debug,
{
    s.parse().expect("number")
}

fn kind(byte: u8) -> Type {
    use Type::*;
    [Push, Ack, Nack, HealthCheck, HealthCheckResponse, PushTracked, AckTracked, PushBatch, AckBatch]
        .into_iter()
        .find(|t| *t as u8 == byte)
        .expect("type")
}

fn decode(op: &str, args: &[&str]) -> Result<String, Verdict> {
    let last = unhex(args[args.len() - 1]);
    Ok(match op {
        "decode-frame" => {
            let (h, payload) = codec::parse_frame(&last)?;
            format!("{} {} {}", h.kind as u8, h.durability as u8, hex(payload))
        }
        "decode-batch" => codec::parse_batch(&last)?.iter().map(|r| hex(r)).collect::<Vec<_>>().join(" "),
        "decode-ack_batch" => codec::parse_ack_batch(&last, number(args[0]))?.iter().map(|b| if *b { '1' } else { '0' }).collect(),
        "decode-coordinate" => {
            let c = codec::parse_coordinate(&last)?;
            format!("{} {} {}", c.index, hex(&c.id), hex(c.segment.as_bytes()))
        }
        _ => {
            let (reason, version) = codec::parse_nack(&last)?;
            format!("{reason} {}", version.unwrap_or(0))
        }
    })
}

fn encode(op: &str, args: &[&str]) -> String {
    let mut out = Vec::new();
    match op {
        "encode-frame" => {
            let d = if args[1] == "3" { Durability::Buffered } else { Durability::Durable };
            codec::append_frame(&mut out, kind(number(args[0])), d, &unhex(args[2]));
        }
        "encode-batch" => codec::append_batch(&mut out, &args.iter().map(|a| unhex(a)).collect::<Vec<_>>()),
        "encode-ack_batch" => codec::append_ack_batch(&mut out, &args[0].bytes().map(|b| b == b'1').collect::<Vec<_>>()),
        "encode-coordinate" => {
            let id = unhex(args[1]).try_into().expect("32 bytes");
            let segment = String::from_utf8(unhex(args[2])).expect("UTF-8");
            codec::append_coordinate(&mut out, &Coordinate { segment, index: number(args[0]), id });
        }
        _ => {
            out.push(number(args[0]));
            if out[0] == codec::VERSION_MISMATCH {
                out.push(number(args[1]));
            }
        }
    }
    hex(&out)
}

fn answer(line: &str) -> String {
    let words: Vec<&str> = line.split(' ').collect();
    let (op, args) = (words[0], &words[1..]);
    match op {
        "decode-frame" | "decode-batch" | "decode-ack_batch" | "decode-coordinate" | "decode-nack" => match decode(op, args) {
            Ok(fields) => format!("ok {fields}"),
            Err(v) => format!("err {}", v.name()),
        },
        "encode-frame" | "encode-batch" | "encode-ack_batch" | "encode-coordinate" | "encode-nack" => format!("ok {}", encode(op, args)),
        "record_id" => {
            let segment = String::from_utf8(unhex(args[1])).expect("UTF-8");
            format!("ok {}", hex(&codec::record_id(&segment, number(args[0]), &unhex(args[2]))))
        }
        _ => "skip".into(),
    }
}

fn main() -> io::Result<()> {
    let mut out = io::stdout();
    for line in io::stdin().lock().lines() {
        writeln!(out, "{}", answer(&line?))?;
        out.flush()?;
    }
    Ok(())
}
