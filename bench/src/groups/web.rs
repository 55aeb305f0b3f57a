//! A web page to Markdown: over loopback, through the guard and the parser child. Compared with the raw transfer, and
//! with the official Python fetch server if it is installed.

use std::{
    cell::Cell,
    fmt::Write as _,
    io::{Read, Write},
    net::{TcpListener, TcpStream},
    process::Command,
    sync::Arc,
    thread,
    time::Duration,
};

use anyhow::{Result, anyhow, ensure};
use helve_contract::ports::{FetchRequest, Web};
use helve_web::{DocumentReader, PageFetcher, WebAccess, client::GuardedClient, guard::AddressGuard};
use serde_json::{Value, json};

use crate::{
    data::Rng,
    desk::{BenchSession, find_program, tmpfs_dir},
    peers::cached,
    report::{BenchReport, BenchTarget, ComparisonSpec, PreparedWork},
    wire::PeerProcess,
};

/// What a page of the usual size may take.
const LIMIT: Duration = Duration::from_millis(30);

pub(super) fn run(report: &mut BenchReport) -> Result<()> {
    let (_held, root) = tmpfs_dir()?;
    let desk = BenchSession::new("solo", &root)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let python = cached("python/bin/mcp-server-fetch").or_else(|| find_program(&["mcp-server-fetch"]));
    if python.is_none() {
        report
            .skip("mcp-server-fetch is not installed: pages are compared with their bytes alone (bench/peers python)");
    }
    for (size, said, aim) in [(100 << 10, "100 KB", Some(LIMIT)), (1 << 20, "1 MB", None)] {
        let port = serve(page(size))?;
        let guard = AddressGuard::new().with_allowlist([format!("127.0.0.1:{port}")]).map_err(|it| anyhow!(it))?;
        let web = WebAccess::new(PageFetcher::new(GuardedClient::new(guard), Arc::new(DocumentReader::new())));
        // Each time another address, so that nothing comes from the cache.
        let turn = Cell::new(0);
        let fetch = || -> Result<usize> {
            turn.set(turn.get() + 1);
            let wanted = FetchRequest::new(format!("http://127.0.0.1:{port}/{}", turn.get()));
            let page = runtime.block_on(web.fetch(&desk.call(), &wanted)).map_err(|it| anyhow!("{it}"))?;
            Ok(page.text.len())
        };
        let length = fetch()?;
        ensure!(length > size / 2, "only {length} bytes of Markdown from a page of {size}");
        let name = format!("web_fetch, {said} to Markdown");
        let duel = ComparisonSpec::of(&name, "the same bytes, not read");
        let duel = aim.into_iter().fold(duel, |it, aim| it.aim(BenchTarget::Micros(aim.as_micros() as f64)));
        let mut ours = |times: usize| (0..times).try_for_each(|_| fetch().map(drop));
        report.compare(duel, &mut ours, &mut |times| (0..times).try_for_each(|_| bytes(port, size)))?;

        let Some(python) = &python else { continue };
        let mut peer = PeerProcess::start(Command::new(python).args(["--ignore-robots-txt", "--allow-private-ips"]))?;
        peer.initialize()?;
        let ask = json!({ "jsonrpc": "2.0", "id": 9, "method": "tools/call", "params": { "name": "fetch",
            "arguments": { "url": format!("http://127.0.0.1:{port}/"), "max_length": 999_999 } } });
        let answer: Value = serde_json::from_str(&peer.request(&ask)?)?;
        let got = answer["result"]["content"][0]["text"].as_str().map_or(0, str::len);
        ensure!(got > size / 2, "the Python server gave {got} bytes: {}", answer["result"]["isError"]);
        report.compare(ComparisonSpec::of(&name, "mcp-server-fetch (Python)"), &mut ours, &mut |times| {
            (0..times).try_for_each(|_| peer.request(&ask).map(drop))
        })?;
    }
    let (desk, runtime) = (&desk, &runtime);
    let mut grown = |size: usize| -> Result<PreparedWork<'_>> {
        let port = serve(page(size))?;
        let guard = AddressGuard::new().with_allowlist([format!("127.0.0.1:{port}")]).map_err(|it| anyhow!(it))?;
        let web = WebAccess::new(PageFetcher::new(GuardedClient::new(guard), Arc::new(DocumentReader::new())));
        let mut turn = 0;
        Ok(Box::new(move |times| {
            (0..times).try_for_each(|_| {
                turn += 1;
                let wanted = FetchRequest::new(format!("http://127.0.0.1:{port}/{turn}"));
                runtime.block_on(web.fetch(&desk.call(), &wanted)).map(drop).map_err(|it| anyhow!("{it}"))
            })
        }))
    };
    report.measure_growth(
        ("web_fetch to Markdown", "bytes"),
        &[1_000, 10_000, 100_000, 1_000_000],
        &mut [("helve", &mut grown)],
    )
}

/// An article of about so many bytes, with what articles have.
fn page(size: usize) -> String {
    let mut dice = Rng::new();
    let mut out = String::from("<!doctype html><html><head><title>A long article</title></head><body><nav><ul>");
    for at in 0..20 {
        _ = write!(out, "<li><a href='/part/{at}'>Part {at}</a></li>");
    }
    out.push_str("</ul></nav><article><h1>A long article</h1>");
    for at in 0.. {
        if out.len() >= size {
            break;
        }
        let line = dice.source_line();
        _ = match at % 9 {
            0 => write!(out, "<h2>{}</h2>", line.chars().take(40).collect::<String>()),
            5 => write!(out, "<ul><li>{line}</li><li><b>{}</b></li></ul>", dice.source_line()),
            8 => write!(out, "<pre><code>{line}\n{}</code></pre>", dice.source_line()),
            _ => write!(
                out,
                "<p>{line}, <a href='/x/{at}'>and on</a>, {}, {}.</p>",
                dice.source_line(),
                dice.source_line()
            ),
        };
    }
    out + "</article><footer>The end</footer></body></html>"
}

/// Serves one page at every address. The port.
fn serve(page: String) -> Result<u16> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let port = listener.local_addr()?.port();
    let head = "HTTP/1.1 200 OK\r\nContent-Type: text/html; charset=utf-8\r\nConnection: close\r\n";
    let answer = format!("{head}Content-Length: {}\r\n\r\n{page}", page.len());
    thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let mut asked = [0; 4096];
            if stream.read(&mut asked).is_ok_and(|it| it > 0) {
                _ = stream.write_all(answer.as_bytes());
            }
        }
    });
    Ok(port)
}

/// The page as it comes over the wire.
fn bytes(port: u16, size: usize) -> Result<()> {
    let mut stream = TcpStream::connect(("127.0.0.1", port))?;
    stream.write_all(b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n")?;
    let mut all = Vec::with_capacity(size);
    stream.read_to_end(&mut all)?;
    ensure!(all.len() > size, "the page was cut");
    Ok(())
}
