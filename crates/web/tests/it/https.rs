//! TLS with a certificate that is its own authority: directly, and through the operator's proxy.

use std::{
    process::Command,
    sync::{Arc, Mutex},
};

use helve_web::{
    client::{GuardedClient, HttpRequest, UpstreamProxy},
    guard::AddressGuard,
};
use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader, copy_bidirectional},
    net::{TcpListener, TcpStream},
};

use crate::loopback::{CERTIFICATE, acceptor};

/// A server that says hello over TLS. Its port.
async fn hello() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        while let Ok((tcp, _)) = listener.accept().await {
            let Ok(mut tls) = acceptor().accept(tcp).await else { continue };
            let mut asked = vec![0; 4096];
            if tls.read(&mut asked).await.is_ok_and(|it| it > 0) {
                _ = tls.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nConnection: close\r\n\r\nhello").await;
                _ = tls.shutdown().await;
            }
        }
    });
    port
}

/// A proxy that connects, and keeps the first words of those who ask it. Its port.
async fn tunnels(heard: Arc<Mutex<Vec<String>>>) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        while let Ok((tcp, _)) = listener.accept().await {
            let mut tcp = BufReader::new(tcp);
            let (mut first, mut line) = (String::new(), String::new());
            _ = tcp.read_line(&mut first).await;
            while tcp.read_line(&mut line).await.is_ok_and(|it| it > 2) {
                if line.starts_with("Proxy-Authorization") {
                    first += &line;
                }
                line.clear();
            }
            let place = first.split(' ').nth(1).unwrap_or_default().to_owned();
            heard.lock().unwrap().push(first);
            let Ok(mut far) = TcpStream::connect(place).await else { continue };
            _ = tcp.write_all(b"HTTP/1.1 200 Connected\r\n\r\n").await;
            tokio::spawn(async move { copy_bidirectional(&mut tcp, &mut far).await });
        }
    });
    port
}

async fn get(client: &GuardedClient, url: &str) -> String {
    client
        .send(HttpRequest::get(url))
        .await
        .map_or_else(|it| it.to_string(), |it| format!("{} {}", it.status, it.text()))
}

fn client(port: u16) -> GuardedClient {
    let entries = [format!("localhost:{port}"), format!("127.0.0.1:{port}")];
    GuardedClient::new(AddressGuard::new().with_allowlist(entries).unwrap())
}

#[tokio::test]
async fn a_certificate_that_nobody_vouches_for_is_refused_in_words() {
    let port = hello().await;
    let said = get(&client(port), &format!("https://127.0.0.1:{port}/")).await;
    let begins = "no secure connection to 127.0.0.1 could be made: its certificate cannot be trusted: ";
    assert!(said.starts_with(begins) && said.contains("self-signed"), "{said}");
    let plain = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = plain.local_addr().unwrap().port();
    tokio::spawn(async move {
        while let Ok((mut tcp, _)) = plain.accept().await {
            _ = tcp.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").await;
        }
    });
    let said = get(&client(port), &format!("https://127.0.0.1:{port}/")).await;
    assert!(said.starts_with("no secure connection to 127.0.0.1 could be made: "), "{said}");
}

/// The system's list of authorities is read once in a program, so this is run again in one that has another list.
#[test]
fn a_page_comes_over_tls_and_through_a_tunnel() {
    let ran = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "https::with_our_authority", "--ignored", "--nocapture"])
        .env("SSL_CERT_FILE", CERTIFICATE)
        .env_remove("SSL_CERT_DIR")
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&ran.stdout).into_owned() + &String::from_utf8_lossy(&ran.stderr);
    assert!(ran.status.success() && said.contains("1 passed"), "{said}");
}

#[tokio::test]
#[ignore = "run by a_page_comes_over_tls_and_through_a_tunnel"]
async fn with_our_authority() {
    let (port, heard) = (hello().await, Arc::new(Mutex::new(Vec::new())));
    let url = format!("https://127.0.0.1:{port}/");
    assert_eq!(get(&client(port), &url).await, "200 hello");

    let proxy = tunnels(heard.clone()).await;
    let by_proxy = client(port).with_proxy(UpstreamProxy::parse(&format!("http://u:p@127.0.0.1:{proxy}")).unwrap());
    assert_eq!(get(&by_proxy, &url).await, "200 hello");
    let said = get(&by_proxy, "https://127.0.0.1:1/").await;
    assert!(said.contains("was not reached"), "{said}");
    let expected = format!("CONNECT 127.0.0.1:{port} HTTP/1.1\r\nProxy-Authorization: Basic dTpw\r\n");
    assert_eq!(*heard.lock().unwrap(), [expected]);
}
