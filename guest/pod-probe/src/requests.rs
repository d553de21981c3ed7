//! Requests over one connection, each answered before the next is sent: a server, and a client that says how long it
//! waited at the most. Both have one thread, and are what moves while it is at work.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::{Failure, failed};

/// How long the client waits for an answer.
const PATIENCE: Duration = Duration::from_secs(300);

/// How many requests it sends in any case.
const REQUESTS: u64 = 10;

/// How long it waits between two requests.
const PAUSE: Duration = Duration::from_micros(200);

/// Answers each line with the same number, doubled.
pub fn double(port: &str) -> Result<(), Failure> {
    let port: u16 = port.parse().map_err(|_| "no port".to_owned())?;
    let listener = TcpListener::bind((Ipv4Addr::UNSPECIFIED, port)).map_err(failed("bind"))?;
    println!("serving");
    std::io::stdout().flush().map_err(failed("standard output"))?;
    for stream in listener.incoming() {
        let stream = stream.map_err(failed("accept"))?;
        std::thread::spawn(move || serve(&stream));
    }
    Ok(())
}

/// Serves one connection to its end.
fn serve(stream: &TcpStream) -> Result<(), Failure> {
    stream.set_nodelay(true).map_err(failed("nodelay"))?;
    for line in BufReader::new(stream).lines() {
        let number: u64 = line.map_err(failed("hear"))?.parse().map_err(|_| "no number")?;
        (&mut &*stream)
            .write_all(format!("{}\n", number * 2).as_bytes())
            .map_err(failed("answer"))?;
    }
    Ok(())
}

/// Sends requests over one connection to `ADDRESS`, which may be a name, until its standard input ends, and some in any
/// case; says how many were answered and how many milliseconds the longest answer took.
pub fn request(address: &str) -> Result<(), Failure> {
    static IS_OVER: AtomicBool = AtomicBool::new(false);
    let stream = TcpStream::connect(address).map_err(failed("connect"))?;
    stream.set_nodelay(true).map_err(failed("nodelay"))?;
    stream.set_read_timeout(Some(PATIENCE)).map_err(failed("a limit"))?;
    println!("connected");
    std::io::stdout().flush().map_err(failed("standard output"))?;
    std::thread::spawn(|| {
        let _ = std::io::stdin().read_to_end(&mut Vec::new());
        IS_OVER.store(true, Ordering::Relaxed);
    });
    let (mut lines, mut longest) = (BufReader::new(&stream).lines(), Duration::ZERO);
    let mut number: u64 = 0;
    while number < REQUESTS || !IS_OVER.load(Ordering::Relaxed) {
        let begun = Instant::now();
        (&mut &stream).write_all(format!("{number}\n").as_bytes()).map_err(failed("ask"))?;
        let answer = lines.next().ok_or("the connection has ended")?.map_err(failed("hear"))?;
        if answer != (number * 2).to_string() {
            return Err(format!("the answer to {number} is {answer}"));
        }
        longest = longest.max(begun.elapsed());
        number += 1;
        std::thread::sleep(PAUSE);
    }
    println!("answered {number} longest {}", longest.as_millis());
    Ok(())
}
