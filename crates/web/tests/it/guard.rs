//! The guard and the client, with real sockets on loopback and names of our own.

use std::{
    io::{self, Read, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
    time::Duration,
};

use async_trait::async_trait;
use flate2::{Compression, write::GzEncoder};
use helve_contract::{Error, Result, ports::RedirectPolicy};
use helve_web::{
    client::{GuardedClient, HttpLimits, HttpRequest, HttpResponse, UpstreamProxy},
    guard::{AddressGuard, Resolver},
};

use crate::desk::wait;

/// A server on loopback that answers each request with these bytes. Its port, and how often it was asked.
pub(crate) fn serve(answer: impl Fn(&str) -> Vec<u8> + Send + 'static) -> (u16, Arc<AtomicUsize>) {
    serve_by(move |asked, stream| {
        let _ = stream.write_all(&answer(asked));
    })
}

fn serve_by(answer: impl Fn(&str, &mut TcpStream) + Send + 'static) -> (u16, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let count = Arc::new(AtomicUsize::new(0));
    let counted = count.clone();
    thread::spawn(move || {
        for stream in listener.incoming() {
            let Ok(mut stream) = stream else { continue };
            let mut asked = Vec::new();
            let mut piece = [0; 4096];
            while !asked.windows(4).any(|it| it == b"\r\n\r\n") {
                match stream.read(&mut piece) {
                    Ok(0) | Err(_) => break,
                    Ok(read) => asked.extend_from_slice(&piece[..read]),
                }
            }
            if !asked.is_empty() {
                counted.fetch_add(1, Ordering::SeqCst);
                answer(&String::from_utf8_lossy(&asked), &mut stream);
            }
        }
    });
    (port, count)
}

pub(crate) fn answer(head: &str, body: impl AsRef<[u8]>) -> Vec<u8> {
    let body = body.as_ref();
    let head = format!("HTTP/1.1 {head}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n", body.len());
    [head.as_bytes(), body].concat()
}

fn moved(to: &str) -> Vec<u8> {
    answer(&format!("302 Found\r\nLocation: {to}"), "")
}

pub(crate) fn client(ports: &[u16]) -> GuardedClient {
    GuardedClient::new(AddressGuard::new().with_allowlist(ports.iter().map(|it| format!("127.0.0.1:{it}"))).unwrap())
}

fn send(client: &GuardedClient, request: HttpRequest) -> Result<HttpResponse> {
    wait(client.send(request))
}

fn said(answer: Result<HttpResponse>) -> String {
    answer.map_or_else(|error| error.to_string(), |it| format!("{} {}", it.status, it.text()))
}

/// Names that lead to one address after the other, and at last to the same again and again.
struct Turning(Vec<&'static str>, AtomicUsize);

#[async_trait]
impl Resolver for Turning {
    async fn resolve(&self, _: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
        let at = self.1.fetch_add(1, Ordering::SeqCst).min(self.0.len() - 1);
        Ok(vec![SocketAddr::new(self.0[at].parse().unwrap(), port)])
    }
}

#[test]
fn a_redirect_inwards_is_refused_before_anybody_is_dialled() {
    let (secret, asked) = serve(|_| answer("200 OK", "secret"));
    for to in [
        format!("http://127.0.0.1:{secret}/"),
        format!("http://0x7f.1:{secret}/"),
        format!("//2130706433:{secret}/"),
        format!("http://localhost:{secret}/"),
        format!("http://[::ffff:127.0.0.1]:{secret}/"),
        "file:///etc/passwd".to_owned(),
        "gopher://127.0.0.1/".to_owned(),
        "javascript:alert(1)".to_owned(),
        "http://169.254.169.254/latest/meta-data/".to_owned(),
    ] {
        let (front, _) = serve(move |_| moved(&to));
        let error = send(&client(&[front]), HttpRequest::get(format!("http://127.0.0.1:{front}/"))).unwrap_err();
        assert!(matches!(error, Error::Denied(_)), "{error}");
    }
    assert_eq!(asked.load(Ordering::SeqCst), 0);
}

#[test]
fn a_name_is_looked_up_once_and_only_that_answer_is_dialled() {
    let (port, asked) = serve(|_| answer("200 OK", "hello"));
    let names = Arc::new(Turning(vec!["127.0.0.1", "127.0.0.9"], AtomicUsize::new(0)));
    let guard = AddressGuard::new().with_allowlist([format!("127.0.0.1:{port}")]).unwrap().with_resolver(names.clone());
    let client = GuardedClient::new(guard);
    let url = format!("http://turning.example:{port}/");
    assert_eq!(said(send(&client, HttpRequest::get(&url))), "200 hello");
    assert_eq!(names.1.load(Ordering::SeqCst), 1);
    let second = said(send(&client, HttpRequest::get(&url)));
    assert_eq!(
        second,
        format!(
            "http://turning.example:{port} was not reached: the name leads to 127.0.0.9, which is loopback (127.0.0.0/8). \
             Only the operator can open it (setting web.allow)"
        )
    );
    assert_eq!(asked.load(Ordering::SeqCst), 1);
}

#[test]
fn a_way_of_redirects_ends() {
    let (port, asked) = serve(|_| moved("/again"));
    let url = format!("http://127.0.0.1:{port}/");
    let text = said(send(&client(&[port]), HttpRequest::get(&url)));
    assert_eq!(text, format!("{url}again redirects more than 10 times"));
    assert_eq!(asked.load(Ordering::SeqCst), 11);
    let answer = send(&client(&[port]), HttpRequest::get(&url).redirects(RedirectPolicy::Never)).unwrap();
    assert_eq!((answer.status, answer.moved_to), (302, Some(format!("{url}again"))));
}

#[test]
fn what_is_private_to_one_origin_stays_there() {
    let (second, _) = serve(|asked| answer("200 OK", asked));
    let to = format!("http://127.0.0.1:{second}/x");
    let (first, _) = serve(move |asked| {
        if asked.contains("/login") {
            answer(&format!("302 Found\r\nSet-Cookie: id=1\r\nLocation: {to}"), "")
        } else {
            answer("200 OK", asked)
        }
    });
    let client = client(&[first, second]);
    let request = HttpRequest::get(format!("http://127.0.0.1:{first}/login"))
        .header("Authorization", "Bearer secret")
        .header("X-Api-Key", "secret")
        .header("Accept", "text/plain");
    let seen = send(&client, request).unwrap().text().to_lowercase();
    assert!(!seen.contains("secret") && !seen.contains("cookie") && !seen.contains("referer"), "{seen}");
    assert!(seen.contains("accept: text/plain") && seen.contains("user-agent: helve/"), "{seen}");
    let again = send(&client, HttpRequest::get(format!("http://127.0.0.1:{first}/"))).unwrap().text().to_lowercase();
    assert!(!again.contains("cookie"), "{again}");
}

#[test]
fn a_bomb_is_unpacked_up_to_the_limit_and_no_further() {
    let mut packer = GzEncoder::new(Vec::new(), Compression::best());
    packer.write_all(&vec![b'a'; 64 << 20]).unwrap();
    let bomb = packer.finish().unwrap();
    let (port, _) = serve(move |_| answer("200 OK\r\nContent-Encoding: gzip", &bomb));
    let answer = send(&client(&[port]), HttpRequest::get(format!("http://127.0.0.1:{port}/"))).unwrap();
    assert_eq!((answer.body.len(), answer.truncated), (5 << 20, true));
    let (twice, _) = serve(|_| self::answer("200 OK\r\nContent-Encoding: gzip, gzip", "x"));
    assert_eq!(
        said(send(&client(&[twice]), HttpRequest::get(format!("http://127.0.0.1:{twice}/")))),
        "the answer is packed 2 times over, and only one layer is opened"
    );
}

#[test]
fn slow_endless_and_overlong_answers_end() {
    let limits = HttpLimits {
        first_byte_timeout: Duration::from_millis(300),
        idle_timeout: Duration::from_millis(300),
        total_timeout: Duration::from_secs(5),
        ..HttpLimits::default()
    };
    let get =
        |port: u16| said(send(&client(&[port]), HttpRequest::get(format!("http://127.0.0.1:{port}/")).limits(limits)));
    let (silent, _) = serve_by(|_, stream| {
        let _ = stream.read(&mut [0]);
    });
    assert_eq!(get(silent), "127.0.0.1 did not answer within 0 seconds");
    let (stops, _) = serve_by(|_, stream| {
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\nhalf");
        let _ = stream.read(&mut [0]);
    });
    assert_eq!(get(stops), "200 half");
    let (endless, _) = serve_by(|_, stream| {
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\n\r\n");
        while stream.write_all(&[b'x'; 8192]).is_ok() {}
    });
    assert_eq!(get(endless).len(), 4 + (5 << 20));
    let (many, _) = serve(|_| answer(&format!("200 OK\r\n{}", "A: b\r\n".repeat(100_000)), "x"));
    let (long, _) = serve(|_| answer(&format!("200 OK\r\nA: {}", "b".repeat(1 << 20)), "x"));
    for port in [many, long] {
        assert_eq!(get(port), "127.0.0.1 answered with more headers than are read");
    }
}

#[test]
fn the_proxy_is_used_and_the_guard_speaks_first() {
    let (proxy, asked) = serve(|asked| answer("200 OK", asked.lines().next().unwrap_or_default()));
    let address = format!("http://user:p%40ss@127.0.0.1:{proxy}");
    let names = Arc::new(Turning(vec!["93.184.216.34"], AtomicUsize::new(0)));
    let client = GuardedClient::new(AddressGuard::new().with_resolver(names))
        .with_proxy(UpstreamProxy::parse(&address).unwrap());
    assert_eq!(
        said(send(&client, HttpRequest::get("http://page.example/x?y"))),
        "200 GET http://page.example/x?y HTTP/1.1"
    );
    for inside in ["http://127.0.0.1/", "http://localhost/", "http://metadata.google.internal/", "http://[::1]/"] {
        assert!(matches!(send(&client, HttpRequest::get(inside)), Err(Error::Denied(_))), "{inside}");
    }
    assert_eq!(asked.load(Ordering::SeqCst), 1);
}
