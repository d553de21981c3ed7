//! Requests, mostly over connections that stay: a server, and clients that say how long they waited at the most. Each
//! has one thread, and is what moves while it is at work, or stays while the other side moves.
//!
//! A client asks over all its connections before it hears any answer. Where a server counts its answers, those of each
//! round go on from the last one: none is lost, and none is given twice.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::{Failure, failed};

/// How long the client waits for an answer.
const PATIENCE: Duration = Duration::from_secs(300);

/// The longest page that a client takes.
const PAGE_MAX_BYTES: usize = 1 << 20;

/// How long a server that is slow to accept lets clients wait.
const SLOWNESS: Duration = Duration::from_millis(1);

/// How many requests it sends in any case.
const REQUESTS: u64 = 10;

/// How long it waits between two requests.
const PAUSE: Duration = Duration::from_micros(200);

/// Answers each line with the same number, doubled.
pub fn double(port: &str) -> Result<(), Failure> {
    for stream in listen(port)?.incoming() {
        let stream = stream.map_err(failed("accept"))?;
        std::thread::spawn(move || serve(&stream, usize::MAX));
    }
    Ok(())
}

/// The same for one line of one connection at a time, so that others wait to be accepted.
pub fn double_slowly(port: &str) -> Result<(), Failure> {
    let listener = listen(port)?;
    for stream in listener.incoming() {
        serve(&stream.map_err(failed("accept"))?, 1)?;
        std::thread::sleep(SLOWNESS);
    }
    Ok(())
}

/// Listens at a port, and says so.
fn listen(port: &str) -> Result<TcpListener, Failure> {
    let port: u16 = port.parse().map_err(|_| "no port".to_owned())?;
    let listener = TcpListener::bind((Ipv4Addr::UNSPECIFIED, port)).map_err(failed("bind"))?;
    println!("serving");
    std::io::stdout().flush().map_err(failed("standard output"))?;
    Ok(listener)
}

/// Serves one connection to its end, but so many lines at the most.
fn serve(stream: &TcpStream, most: usize) -> Result<(), Failure> {
    stream.set_nodelay(true).map_err(failed("nodelay"))?;
    for line in BufReader::new(stream).lines().take(most) {
        let number: u64 = line.map_err(failed("hear"))?.parse().map_err(|_| "no number")?;
        (&mut &*stream)
            .write_all(format!("{}\n", number * 2).as_bytes())
            .map_err(failed("answer"))?;
    }
    Ok(())
}

/// How servers are asked.
#[derive(Debug, Clone, Copy)]
pub enum Protocol {
    /// [`double`].
    Double,
    /// HTTP: the answer is a count, or any text.
    Http,
    /// Redis: a number is incremented.
    Redis,
}

/// Which connections a client has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Connections {
    /// The same ones all the time.
    Stay,
    /// Other ones for each round of requests.
    Change,
}

type Connection = BufReader<TcpStream>;

impl Protocol {
    fn ask(self, connection: &mut Connection, number: u64) -> Result<(), Failure> {
        let question = match self {
            Protocol::Double => format!("{number}\n"),
            Protocol::Http => "GET / HTTP/1.1\r\nHost: pod\r\n\r\n".to_owned(),
            Protocol::Redis => "INCR pods\r\n".to_owned(),
        };
        connection.get_mut().write_all(question.as_bytes()).map_err(failed("ask"))
    }

    /// The count that is heard, if it is one.
    fn hear(self, connection: &mut Connection) -> Result<Option<u64>, Failure> {
        let first = line(connection)?;
        let wrong = || format!("this is no answer: {first}");
        match self {
            Protocol::Double => {
                let number: u64 = first.parse().map_err(|_| wrong())?;
                if number.is_multiple_of(2) { Ok(Some(number / 2)) } else { Err(wrong()) }
            }
            Protocol::Redis => {
                let number = first.strip_prefix(':').and_then(|rest| rest.parse().ok());
                number.map(Some).ok_or_else(wrong)
            }
            Protocol::Http if first.starts_with("HTTP/1.1 200 ") => page(connection),
            Protocol::Http => Err(wrong()),
        }
    }
}

fn line(connection: &mut Connection) -> Result<String, Failure> {
    let mut line = String::new();
    match connection.read_line(&mut line).map_err(failed("hear"))? {
        0 => Err("the connection has ended".to_owned()),
        _ => Ok(line.trim_end().to_owned()),
    }
}

/// What follows the first line of an answer of HTTP.
fn page(connection: &mut Connection) -> Result<Option<u64>, Failure> {
    let mut length = None;
    loop {
        let header = line(connection)?.to_ascii_lowercase();
        if header.is_empty() {
            break;
        }
        if let Some(value) = header.strip_prefix("content-length:") {
            length = value.trim().parse::<usize>().ok();
        }
    }
    let length = length.filter(|length| *length <= PAGE_MAX_BYTES);
    let mut page = vec![0; length.ok_or("a page without a length")?];
    connection.read_exact(&mut page).map_err(failed("hear"))?;
    Ok(String::from_utf8_lossy(&page).parse().ok())
}

/// Asks over so many connections to `address`, which may have a name, until its standard input ends, and some times in
/// any case; says how many were answered and how many milliseconds the longest answer took.
pub fn request(
    protocol: Protocol,
    address: &str,
    count: &str,
    which: Connections,
) -> Result<(), Failure> {
    static IS_OVER: AtomicBool = AtomicBool::new(false);
    let count: u64 = count.parse().map_err(|_| "no number of connections")?;
    let connect_all = || (0..count).map(|_| connect(address)).collect::<Result<Vec<_>, _>>();
    let mut connections = connect_all()?;
    println!("connected");
    std::io::stdout().flush().map_err(failed("standard output"))?;
    std::thread::spawn(|| {
        let _ = std::io::stdin().read_to_end(&mut Vec::new());
        IS_OVER.store(true, Ordering::Relaxed);
    });
    let (mut longest, mut number, mut next) = (Duration::ZERO, 0, None);
    while number < REQUESTS || !IS_OVER.load(Ordering::Relaxed) {
        let begun = Instant::now();
        if which == Connections::Change {
            drop(connections);
            connections = connect_all()?;
        }
        for (index, connection) in (0..).zip(&mut connections) {
            protocol.ask(connection, number + index)?;
        }
        let heard = connections.iter_mut().map(|connection| protocol.hear(connection));
        let mut heard = heard.collect::<Result<Vec<_>, _>>()?;
        heard.sort_unstable();
        for count in heard.into_iter().flatten() {
            let expected = next.unwrap_or(count);
            if count != expected {
                return Err(format!("the answer is {count}, and {expected} was expected"));
            }
            next = Some(count + 1);
        }
        longest = longest.max(begun.elapsed());
        number += connections.len() as u64;
        std::thread::sleep(PAUSE);
    }
    println!("answered {number} longest {}", longest.as_millis());
    Ok(())
}

fn connect(address: &str) -> Result<Connection, Failure> {
    let stream = TcpStream::connect(address).map_err(failed("connect"))?;
    stream.set_nodelay(true).map_err(failed("nodelay"))?;
    stream.set_read_timeout(Some(PATIENCE)).map_err(failed("a limit"))?;
    Ok(BufReader::new(stream))
}
