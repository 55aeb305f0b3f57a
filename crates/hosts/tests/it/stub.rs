//! A minimal HTTP server for test services: one thread per connection, one request each.

use std::{
    collections::HashMap,
    io::{BufRead, BufReader, Read, Write},
    net::{TcpListener, TcpStream},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
};

use serde_json::Value;

/// A request that came in, and the line it came by.
pub(crate) struct Request {
    pub(crate) method: String,
    pub(crate) path: String,
    pub(crate) query: HashMap<String, String>,
    pub(crate) headers: HashMap<String, String>,
    pub(crate) body: Vec<u8>,
    pub(crate) line: BufReader<TcpStream>,
}

impl Request {
    fn read(stream: TcpStream) -> Option<Self> {
        let mut line = BufReader::new(stream);
        let mut text = String::new();
        line.read_line(&mut text).ok()?;
        let mut words = text.split(' ');
        let (method, target) = (words.next()?.to_owned(), words.next()?.to_owned());
        let mut headers = HashMap::new();
        loop {
            let mut text = String::new();
            line.read_line(&mut text).ok()?;
            let Some((name, value)) = text.trim_end().split_once(':') else { break };
            headers.insert(name.to_ascii_lowercase(), value.trim().to_owned());
        }
        let length = headers.get("content-length").map_or(0, |it| it.parse().unwrap());
        let mut body = vec![0; length];
        line.read_exact(&mut body).ok()?;
        let (path, query) = target.split_once('?').unwrap_or((&target, ""));
        let query = query.split('&').filter_map(|pair| pair.split_once('='));
        let query = query.map(|(name, value)| (name.to_owned(), decoded(value))).collect();
        Some(Self { method, path: path.to_owned(), query, headers, body, line })
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or(Value::Null)
    }

    /// Answers with a body of JSON.
    pub(crate) fn answer(mut self, status: u16, body: Value) {
        let body = if body.is_null() { String::new() } else { body.to_string() };
        let head = format!("HTTP/1.1 {status} Told\r\nConnection: close\r\nContent-Length: {}\r\n\r\n", body.len());
        _ = self.line.get_mut().write_all((head + &body).as_bytes());
    }
}

fn decoded(text: &str) -> String {
    let mut bytes = Vec::new();
    let mut rest = text.as_bytes();
    while let [first, others @ ..] = rest {
        rest = others;
        match (first, others) {
            (b'%', [a, b, after @ ..]) => {
                let code = std::str::from_utf8(&[*a, *b]).unwrap().to_owned();
                bytes.push(u8::from_str_radix(&code, 16).unwrap());
                rest = after;
            }
            (b'+', _) => bytes.push(b' '),
            (byte, _) => bytes.push(*byte),
        }
    }
    String::from_utf8(bytes).unwrap()
}

/// A server on loopback, which stops when it is dropped.
pub(crate) struct Server {
    pub(crate) port: u16,
    over: Arc<AtomicBool>,
}

impl Server {
    pub(crate) fn start(handle: impl Fn(Request) + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let over = Arc::new(AtomicBool::new(false));
        let (stop, handle) = (over.clone(), Arc::new(handle));
        thread::spawn(move || {
            for stream in listener.incoming() {
                if stop.load(Ordering::Relaxed) {
                    return;
                }
                let (Ok(stream), handle) = (stream, handle.clone()) else { continue };
                _ = stream.set_nodelay(true);
                thread::spawn(move || {
                    if let Some(request) = Request::read(stream) {
                        handle(request);
                    }
                });
            }
        });
        Self { port, over }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
        _ = TcpStream::connect(("127.0.0.1", self.port));
    }
}
