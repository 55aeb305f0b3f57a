//! Pages from a loopback server, through the guard, the client and the parsing child.

use std::sync::{Arc, atomic::Ordering};

use helve_contract::{
    Error,
    ports::{FetchRequest, FetchResponse, PageFormat, PageScope, RedirectPolicy, Web},
};
use helve_web::{PageFetcher, WebAccess};
use image::ImageFormat;

use crate::{
    desk::{call, reader, wait},
    guard::{answer, client, serve},
    pdfs::pages,
    pictures::encoded,
};

fn web(port: u16) -> WebAccess {
    WebAccess::new(PageFetcher::new(client(&[port]), Arc::new(reader())))
}

fn get(head: &'static str, body: impl AsRef<[u8]>, style: PageFormat) -> FetchResponse {
    let body = body.as_ref().to_vec();
    let (port, _) = serve(move |_| answer(head, &body));
    let wanted = FetchRequest {
        format: style,
        scope: PageScope::Whole,
        ..FetchRequest::new(format!("http://127.0.0.1:{port}/"))
    };
    wait(web(port).fetch(&call(), &wanted)).unwrap()
}

const PAGE: &str = "<!doctype html><title>A &amp; B</title><base href='http://127.0.0.1/docs/'><h1>Top</h1>\
    <p>Some <b>bold</b> and <i>thin</i> words, <code>x = 1</code>, a <a href='next'>link</a>.<br>New line\
    <ul><li>one<li>two<ol><li>deep</ol></ul><pre><code class='language-rust'>fn main() {\n}\n</code></pre>\
    <table><tr><th>Name<th>Price<tr><td>Lamp<td>20|</table><blockquote><p>Said</blockquote>\
    <img src='/cat.png' alt='A cat'><div hidden>hidden</div><p style='display: none'>gone</p><!-- no --><script>no</script>";

#[test]
fn a_page_becomes_markdown() {
    let page = get("200 OK\r\nContent-Type: text/html", PAGE, PageFormat::Markdown);
    assert_eq!(page.title.as_deref(), Some("A & B"));
    assert_eq!(
        page.text,
        "# Top\n\nSome **bold** and *thin* words, `x = 1`, a [link](http://127.0.0.1/docs/next).  \nNew line\n\n\
         - one\n- two\n  1. deep\n\n```rust\nfn main() {\n}\n```\n\n| Name | Price |\n| --- | --- |\n| Lamp | 20\\| |\n\n\
         > Said\n\n![A cat](http://127.0.0.1/cat.png)\n"
    );
}

#[test]
fn a_page_becomes_text() {
    let page = get("200 OK\r\nContent-Type: text/html", PAGE, PageFormat::Text);
    assert_eq!(
        page.text,
        "# Top\n\nSome bold and thin words, `x = 1`, a link (http://127.0.0.1/docs/next).\nNew line\n\n\
         - one\n- two\n  1. deep\n\n```rust\nfn main() {\n}\n```\n\n| Name | Price |\n| --- | --- |\n| Lamp | 20\\| |\n\n\
         > Said\n\n[Image: A cat]\n"
    );
}

#[test]
fn the_article_comes_without_what_is_around_it() {
    let words = "This is a sentence of the article, and it goes on for a while, so that it counts. ".repeat(8);
    let page = format!(
        "<html><head><title>News</title></head><body><nav><ul><li><a href=/>Home</a><li><a href=/x>Other</a></ul></nav>\
         <article><h2>Part</h2><p>{words}</p><p>{words}</p></article><footer>Imprint and cookies</footer></body></html>"
    );
    let (port, _) = serve(move |_| answer("200 OK\r\nContent-Type: text/html", &page));
    let page = wait(web(port).fetch(&call(), &FetchRequest::new(format!("http://127.0.0.1:{port}/")))).unwrap();
    assert!(page.is_article_only && page.text.contains("## Part") && page.text.contains("a sentence of the article"));
    assert!(!page.text.contains("Imprint") && !page.text.contains("Home"), "{}", page.text);
}

#[test]
fn data_and_text_come_as_they_are_in_every_charset() {
    let json = get("200 OK\r\nContent-Type: application/json", "{\"a\": [1]}", PageFormat::Markdown);
    assert_eq!((json.text.as_str(), json.mime.as_str()), ("{\"a\": [1]}", "application/json"));
    let latin = get("200 OK\r\nContent-Type: text/plain; charset=latin1", b"caf\xe9", PageFormat::Markdown);
    assert_eq!((latin.text.as_str(), latin.notes), ("café", vec!["read as windows-1252".to_owned()]));
    let page = get("200 OK\r\nContent-Type: text/html", b"<meta charset=shift_jis><p>\x82\xa0", PageFormat::Markdown);
    assert_eq!(page.text, "あ\n");
    let source = get("200 OK\r\nContent-Type: text/html", "<p>x", PageFormat::Source);
    assert_eq!(source.text, "<p>x");
}

#[test]
fn what_has_no_text_is_described() {
    let zip = get("200 OK\r\nContent-Type: application/octet-stream", b"PK\x03\x04\0\0", PageFormat::Markdown);
    assert_eq!((zip.text.as_str(), zip.mime.as_str(), zip.bytes), ("", "application/zip", 6));
    assert_eq!(zip.notes, ["application/zip is not text; only what is known about it is given"]);
}

#[test]
fn a_pdf_comes_page_by_page() {
    let file = pages(&["BT /F1 12 Tf 72 700 Td (One.) Tj ET", "BT /F1 12 Tf 72 700 Td (Two.) Tj ET"], &[]);
    for head in
        ["200 OK\r\nContent-Type: application/pdf", "200 OK\r\nContent-Type: application/octet-stream", "200 OK"]
    {
        let page = get(head, &file, PageFormat::Markdown);
        assert_eq!(page.text, "--- page 1 of 2 ---\n\nOne.\n\n--- page 2 of 2 ---\n\nTwo.");
        assert_eq!(page.mime, "application/pdf");
    }
    let (port, _) = serve(|_| answer("200 OK\r\nContent-Type: application/pdf", "%PDF-1.7\nnothing"));
    let said = wait(web(port).fetch(&call(), &FetchRequest::new(format!("http://127.0.0.1:{port}/"))))
        .unwrap_err()
        .to_string();
    assert!(said.contains("not a PDF file, or a damaged one"), "{said}");
}

#[test]
fn a_picture_comes_as_one() {
    let file = encoded(8, 5, ImageFormat::Png);
    let page = get("200 OK\r\nContent-Type: image/png", &file, PageFormat::Markdown);
    let media = page.media.unwrap();
    assert_eq!((media.mime.as_str(), media.bytes, page.text.as_str()), ("image/png", file, ""));
    assert_eq!(page.notes, ["a picture of 8 × 5 pixels"]);
    // What only says that it is an image is none.
    let (port, _) = serve(|_| answer("200 OK\r\nContent-Type: image/png", b"\x89PNG\r\n\x1a\nno"));
    let said = wait(web(port).fetch(&call(), &FetchRequest::new(format!("http://127.0.0.1:{port}/"))));
    assert!(said.is_err(), "{said:?}");
}

#[test]
fn a_hundred_thousand_tags_deep_the_text_is_still_there() {
    for tag in ["div", "table", "b", "blockquote", "ul><li", "x-y", "svg", "a"] {
        let deep = format!("<title>Deep</title>{}text{}", format!("<{tag}>").repeat(100_000), "</div>".repeat(10));
        let (port, _) = serve(move |_| answer("200 OK\r\nContent-Type: text/html", &deep));
        let wanted = FetchRequest { scope: PageScope::Whole, ..FetchRequest::new(format!("http://127.0.0.1:{port}/")) };
        match wait(web(port).fetch(&call(), &wanted)) {
            Ok(page) => assert!(page.text.contains("text") || tag == "svg", "{tag}: {:?}", page.text),
            Err(error) => assert!(error.to_string().starts_with("the page could not be read"), "{tag}: {error}"),
        }
    }
}

#[test]
fn odd_pages_end() {
    for page in [
        format!("<a title='{}'>x</a>", "y".repeat(4 << 20)),
        "<plaintext>".to_owned() + &"<b>".repeat(1000),
        "<!--".repeat(100_000),
        "<p><b>".repeat(20_000),
        "&".repeat(1 << 20),
        "\0".to_owned(),
    ] {
        let (port, _) = serve(move |_| answer("200 OK\r\nContent-Type: text/html", &page));
        let _ = wait(web(port).fetch(&call(), &FetchRequest::new(format!("http://127.0.0.1:{port}/"))));
    }
}

#[test]
fn what_nobody_sees_reaches_nobody() {
    let page = "<title>T\u{200b}x</title><p>vis\u{e0041}\u{e0042}ible\u{202e}</p><p style='font-size:0'>small</p>";
    let page = get("200 OK\r\nContent-Type: text/html", page, PageFormat::Markdown);
    assert_eq!((page.title.as_deref(), page.text.as_str()), (Some("Tx"), "visible\n"));
    assert_eq!(page.notes, ["3 invisible characters were taken out"]);
}

#[test]
fn the_second_time_comes_from_the_cache() {
    let (port, asked) = serve(|_| answer("200 OK\r\nContent-Type: text/plain", "hi"));
    let (web, wanted) = (web(port), FetchRequest::new(format!("http://127.0.0.1:{port}/")));
    let seen = [(); 2].map(|()| wait(web.fetch(&call(), &wanted)).unwrap().cached);
    assert_eq!((seen, asked.load(Ordering::SeqCst)), ([false, true], 1));
    let (port, asked) = serve(|_| answer("404 Not Found\r\nContent-Type: text/plain", "no"));
    let (web, wanted) = (self::web(port), FetchRequest::new(format!("http://127.0.0.1:{port}/")));
    let seen = [(); 2].map(|()| wait(web.fetch(&call(), &wanted)).unwrap().status);
    assert_eq!((seen, asked.load(Ordering::SeqCst)), ([404, 404], 2));
}

#[test]
fn redirects_are_taken_as_asked() {
    let (port, _) = serve(|asked| {
        if asked.contains("GET /end") {
            answer("200 OK\r\nContent-Type: text/plain", "end")
        } else {
            answer("301 Moved Permanently\r\nLocation: /end", "")
        }
    });
    let url = format!("http://127.0.0.1:{port}/");
    let get =
        |redirects| wait(web(port).fetch(&call(), &FetchRequest { redirects, ..FetchRequest::new(&url) })).unwrap();
    for redirects in [RedirectPolicy::Follow, RedirectPolicy::SameHost] {
        let page = get(redirects);
        assert_eq!((page.url, page.text), (format!("{url}end"), "end".to_owned()));
    }
    let page = get(RedirectPolicy::Never);
    assert_eq!((page.status, page.redirect_to), (301, Some(format!("{url}end"))));
    let (port, _) = serve(|_| answer("302 Found\r\nLocation: http://other.example/", ""));
    let wanted =
        FetchRequest { redirects: RedirectPolicy::SameHost, ..FetchRequest::new(format!("http://127.0.0.1:{port}/")) };
    let page = wait(web(port).fetch(&call(), &wanted)).unwrap();
    assert_eq!(page.redirect_to.as_deref(), Some("http://other.example/"));
}

#[test]
fn what_the_guard_refuses_is_not_fetched() {
    let (port, asked) = serve(|_| answer("200 OK", "secret"));
    let web = WebAccess::new(PageFetcher::new(client(&[]), Arc::new(reader())));
    let said = wait(web.fetch(&call(), &FetchRequest::new(format!("http://127.0.0.1:{port}/"))));
    assert!(matches!(said, Err(Error::Denied(_))), "{said:?}");
    let call = call();
    call.cancel.cancel();
    let said = wait(self::web(port).fetch(&call, &FetchRequest::new(format!("http://127.0.0.1:{port}/"))));
    assert!(matches!(said, Err(Error::Cancelled)), "{said:?}");
    assert_eq!(asked.load(Ordering::SeqCst), 0);
}
