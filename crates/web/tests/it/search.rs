//! Searches against servers that say what the real ones say.

use helve_contract::{
    Error,
    ports::{Freshness, WebQuery, WebResults},
};
use helve_web::search::{SearchClient, SearchConfig};
use serde_json::{Value, json};

use crate::{
    desk::call,
    loopback::{Canned, Http},
};

fn search(provider: &str, base: &str) -> SearchClient {
    let settings = SearchConfig {
        provider: provider.to_owned(),
        base_url: Some(base.to_owned()),
        engine: Some("engine-1".to_owned()),
        ..SearchConfig::default()
    };
    SearchClient::new(&settings, |name| name.ends_with("_API_KEY").then(|| format!("key of {name}"))).unwrap()
}

fn query(text: &str) -> WebQuery {
    WebQuery { text: text.to_owned(), count: 10, ..WebQuery::default() }
}

/// `title | url | snippet | published` of each result, and then the notes.
fn shown(results: &WebResults) -> Vec<String> {
    let lines = results
        .results
        .iter()
        .map(|it| format!("{} | {} | {} | {}", it.title, it.url, it.snippet, it.published.as_deref().unwrap_or("-")));
    lines.chain(results.notes.iter().map(|it| format!("note: {it}"))).collect()
}

async fn told(provider: &str, answer: Canned) -> String {
    let server = Http::saying(vec![answer]).await;
    match search(provider, &server.base).search(&call(), &query("x")).await {
        Ok(found) => format!("{:?}", shown(&found)),
        Err(error) => error.to_string().replace(&server.base, "BASE"),
    }
}

const LITE: &str = r#"<!DOCTYPE html><html><head><title>rust async at DuckDuckGo</title></head><body>
<form action="/lite/" method="post"><input name="q" value="rust async"></form>
<table border="0">
 <tr class="result-sponsored"><td>1.&nbsp;</td><td><a rel="nofollow" href="https://duckduckgo.com/y.js?ad_domain=shop.example&amp;x=1" class='result-link'>Buy Rust</a></td></tr>
 <tr class="result-sponsored"><td></td><td class='result-snippet'>An advertisement.</td></tr>
 <tr><td valign="top">1.&nbsp;</td><td><a rel="nofollow" href="//duckduckgo.com/l/?uddg=https%3A%2F%2Frust%2Dlang.github.io%2Fasync%2Dbook%2F&amp;rut=6c1" class='result-link'>Asynchronous <b>Programming</b> in Rust &amp; more</a></td></tr>
 <tr><td>&nbsp;</td><td class='result-snippet'>
   The <b>async</b> book &mdash; it&#x27;s
   free.</td></tr>
 <tr><td>&nbsp;</td><td><span class='link-text'>rust-lang.github.io/async-book/</span><span class='timestamp'>&nbsp;2026-11-01T00:00:00.0000000</span></td></tr>
 <tr><td valign="top">2.&nbsp;</td><td><a rel="nofollow" href="//duckduckgo.com/l/?uddg=https%3A%2F%2Ftokio.rs%2F&amp;rut=a" class='result-link'>Tokio</a></td></tr>
 <tr><td>&nbsp;</td><td class='result-snippet'>A runtime.</td></tr>
 <tr><td valign="top">3.&nbsp;</td><td><a rel="nofollow" href="javascript:alert(1)" class='result-link'>Click me</a></td></tr>
</table></body></html>"#;

#[tokio::test]
async fn duckduckgo_needs_no_key() {
    let server = Http::saying(vec![(200, "content-type: text/html\r\n", LITE.to_owned())]).await;
    let asked = WebQuery { freshness: Some(Freshness::Week), ..query("rust async") };
    let found = search("duckduckgo", &server.base).search(&call(), &asked).await.unwrap();
    assert_eq!(server.asked()[0].line, "GET /lite/?q=rust+async&df=w HTTP/1.1");
    assert_eq!(
        shown(&found),
        [
            "Asynchronous Programming in Rust & more | https://rust-lang.github.io/async-book/ | The async book — it's free. | 2026-11-01T00:00:00.0000000",
            "Tokio | https://tokio.rs/ | A runtime. | -",
            "note: 1 result was left out: not an http or https address",
        ]
    );
    assert_eq!((found.provider.as_str(), found.base_url), ("duckduckgo", server.base));
}

#[tokio::test]
async fn domains_are_words_of_the_query_and_are_looked_at_again() {
    let server = Http::saying(vec![(200, "", LITE.to_owned())]).await;
    let asked = WebQuery {
        include_domains: vec!["tokio.rs".into()],
        exclude_domains: vec!["docs.tokio.rs".into()],
        ..query("x")
    };
    let found = search("duckduckgo", &server.base).search(&call(), &asked).await.unwrap();
    assert_eq!(server.asked()[0].line, "GET /lite/?q=x+site%3Atokio.rs+-site%3Adocs.tokio.rs HTTP/1.1");
    assert_eq!(
        shown(&found),
        [
            "Tokio | https://tokio.rs/ | A runtime. | -",
            "note: 1 result was left out: not from the wanted domains",
            "note: 1 result was left out: not an http or https address",
        ]
    );
}

#[tokio::test]
async fn exa_is_asked_in_its_own_words() {
    let answer = json!({
        "requestId": "b5947044c4b78efa9552a7c89b306d95",
        "results": [
            {"title": "A company", "url": "https://example.org/a", "publishedDate": "2026-11-01T00:00:00.000Z",
             "author": null, "score": 0.4, "id": "https://example.org/a", "text": "It\u{200b} makes\nthings."},
            {"title": null, "url": "https://www.example.org/b", "id": "2", "summary": "Short."},
            {"title": "Elsewhere", "url": "https://other.net/", "id": "3"},
        ],
        "costDollars": {"total": 0.005},
    });
    let server = Http::json(&answer.to_string()).await;
    let asked = WebQuery {
        include_domains: vec!["example.org".into()],
        category: Some("research paper".into()),
        freshness: Some(Freshness::Day),
        count: 3,
        ..query("things")
    };
    let found = search("exa", &server.base).search(&call(), &asked).await.unwrap();
    let request = server.asked().remove(0);
    assert_eq!((request.line.as_str(), request.header("x-api-key")), ("POST /search HTTP/1.1", "key of EXA_API_KEY"));
    let mut body = request.json();
    assert!(body["startPublishedDate"].take().as_str().unwrap().ends_with('Z'));
    assert_eq!(
        body,
        json!({
            "query": "things", "numResults": 6, "includeDomains": ["example.org"], "category": "research paper",
            "startPublishedDate": null, "contents": {"text": {"maxCharacters": 1000}},
        })
    );
    assert_eq!(
        shown(&found),
        [
            "A company | https://example.org/a | It makes things. | 2026-11-01T00:00:00.000Z",
            "www.example.org | https://www.example.org/b | Short. | -",
            "note: 1 result was left out: not from the wanted domains",
        ]
    );
}

#[tokio::test]
async fn exa_gives_the_text_of_a_page() {
    let answer = json!({"results": [{"title": "T", "url": "https://example.org/", "id": "1", "text": "# Words"}],
        "statuses": [{"id": "https://example.org/", "status": "success", "source": "cached"}]});
    let server = Http::json(&answer.to_string()).await;
    let page = search("exa", &server.base).contents(&call(), "https://example.org/").await.unwrap().unwrap();
    assert_eq!((page.title.as_deref(), page.text.as_str()), (Some("T"), "# Words"));
    assert_eq!(server.asked()[0].json(), json!({"urls": ["https://example.org/"], "text": true}));

    let nothing = Http::json(r#"{"results": [], "statuses": [{"id": "x", "status": "error"}]}"#).await;
    assert_eq!(search("exa", &nothing.base).contents(&call(), "https://x.org/").await.unwrap(), None);
    assert_eq!(search("brave", &nothing.base).contents(&call(), "https://x.org/").await.unwrap(), None);
}

#[tokio::test]
async fn searxng_brave_google_and_tavily_are_asked_in_theirs() {
    let asked = WebQuery {
        exclude_domains: vec!["bad.net".into()],
        category: Some("news".into()),
        freshness: Some(Freshness::Month),
        count: 2,
        ..query("a b")
    };
    let one = |title: &str, rest: Value| {
        let mut one = json!({"title": title, "url": "https://a.org/", "link": "https://a.org/"});
        one.as_object_mut().unwrap().extend(rest.as_object().unwrap().clone());
        one
    };
    let cases = [
        (
            "searxng",
            json!({"query": "a b", "number_of_results": 0, "unresponsive_engines": [],
                "results": [one("S", json!({"content": "c", "engine": "bing", "publishedDate": "2026-11-02T00:00:00"}))]}),
            "GET /search?q=a+b+-site%3Abad.net&format=json&time_range=month&categories=news HTTP/1.1",
            vec!["S | https://a.org/ | c | 2026-11-02T00:00:00"],
        ),
        (
            "brave",
            json!({"type": "search", "query": {"original": "a b"}, "web": {"type": "search", "results":
                [one("B &amp; <b>b</b>", json!({"description": "a <strong>b</strong> &#x27;c&#x27;", "age": "2 days ago"}))]}}),
            "GET /res/v1/web/search?q=a+b+-site%3Abad.net&count=4&result_filter=web&freshness=pm HTTP/1.1",
            vec![
                "B & b | https://a.org/ | a b 'c' | 2 days ago",
                "note: Brave Search has no category `news`; it was left out",
            ],
        ),
        (
            "google",
            json!({"kind": "customsearch#search", "searchInformation": {"totalResults": "1"}, "items":
                [one("G", json!({"snippet": "s ...", "displayLink": "a.org"}))]}),
            "GET /customsearch/v1?q=a+b&key=key+of+GOOGLE_API_KEY&cx=engine-1&num=4&siteSearch=bad.net&siteSearchFilter=e&dateRestrict=m1 HTTP/1.1",
            vec!["G | https://a.org/ | s ... | -", "note: Google has no category `news`; it was left out"],
        ),
        (
            "tavily",
            json!({"query": "a b", "answer": null, "images": [], "results":
                [one("T", json!({"content": "t", "score": 0.9, "raw_content": null}))], "response_time": 0.7}),
            "POST /search HTTP/1.1",
            vec!["T | https://a.org/ | t | -"],
        ),
    ];
    for (provider, answer, line, results) in cases {
        let server = Http::json(&answer.to_string()).await;
        let found = search(provider, &server.base).search(&call(), &asked).await.unwrap();
        let request = server.asked().remove(0);
        assert_eq!(request.line, line);
        assert_eq!(shown(&found), results);
        match provider {
            "brave" => assert_eq!(request.header("x-subscription-token"), "key of BRAVE_API_KEY"),
            "tavily" => {
                assert_eq!(request.header("authorization"), "Bearer key of TAVILY_API_KEY");
                let body = json!({"query": "a b", "max_results": 4, "exclude_domains": ["bad.net"], "time_range": "month", "topic": "news"});
                assert_eq!(request.json(), body);
            }
            _ => {}
        }
    }
}

#[tokio::test]
async fn refusals_say_what_to_do() {
    let challenge = "<html><div class=\"anomaly-modal__title\">Unfortunately, bots use DuckDuckGo too.</div></html>";
    let person = "DuckDuckGo wants to see a person first and gave no results. Wait some minutes before the next search; if \
                  it stays so, ask the user to set up another provider (search.provider) with a key of its own";
    let cases = [
        ("duckduckgo", (202, "", challenge.to_owned()), person),
        ("duckduckgo", (200, "", challenge.to_owned()), person),
        (
            "duckduckgo",
            (403, "", String::new()),
            "DuckDuckGo refuses searches from here (HTTP 403). Do not try again; ask the user to set up another provider (search.provider)",
        ),
        (
            "brave",
            (
                429,
                "retry-after: 7\r\n",
                r#"{"error": {"code": "RATE_LIMITED", "detail": "Request rate limit exceeded for plan."}}"#.to_owned(),
            ),
            "Brave Search has had too many searches (HTTP 429): Request rate limit exceeded for plan.; search again after 7 s. Do with fewer searches, or fetch an address that you know",
        ),
        (
            "exa",
            (401, "", r#"{"error": "Invalid API key"}"#.to_owned()),
            "Exa refused the key (HTTP 401): Invalid API key; ask the user to check it. Searching again does not help",
        ),
        (
            "searxng",
            (403, "", "<html>Forbidden</html>".to_owned()),
            "the SearXNG server at BASE does not answer in JSON (HTTP 403); its operator must add `json` to search.formats in its settings.yml, or ask the user to choose another provider",
        ),
        (
            "tavily",
            (302, "location: https://login.example/\r\n", String::new()),
            "Tavily at BASE answered with a redirect (HTTP 302) to https://login.example/; ask the user to check search.base_url",
        ),
        (
            "google",
            (200, "", "<html>hello</html>".to_owned()),
            "Google at BASE answered with HTML where JSON belongs; try again later, or ask the user to check search.provider and search.base_url",
        ),
        (
            "exa",
            (200, "", "{\"ok\": true}".to_owned()),
            "Exa at BASE answered with no list of results; try again later, or ask the user to check search.provider and search.base_url",
        ),
        ("tavily", (503, "", "busy".to_owned()), "Tavily does not work right now (HTTP 503); try again later"),
        (
            "google",
            (400, "", r#"{"error": {"code": 400, "message": "Request contains an invalid argument."}}"#.to_owned()),
            "Google did not understand the search (HTTP 400): Request contains an invalid argument.",
        ),
    ];
    for (provider, answer, wanted) in cases {
        assert_eq!(told(provider, answer).await, wanted);
    }
}

#[tokio::test]
async fn answers_are_bounded() {
    let many: Vec<_> = (0..2_000)
        .map(|it| json!({"title": "t".repeat(5_000), "url": format!("https://a.org/{it}"), "content": "c".repeat(200)}))
        .collect();
    let body = json!({ "results": &many[..500] }).to_string();
    let server = Http::json(&body).await;
    let found = search("searxng", &server.base).search(&call(), &query("x")).await.unwrap();
    assert_eq!((found.results.len(), found.results[0].title.chars().count()), (10, 201));

    let server = Http::json(&json!({ "results": many }).to_string()).await;
    let error = search("searxng", &server.base).search(&call(), &query("x")).await.unwrap_err();
    assert_eq!(error.to_string(), "127.0.0.1 answered with more than 4194304 bytes, or broke off; try again later");
}

#[tokio::test]
async fn nothing_found_is_an_answer() {
    let empty = "<html><form action=\"/lite/\"></form>No results.</html>";
    for (provider, body) in [
        ("duckduckgo", empty),
        ("brave", r#"{"type": "search", "query": {}}"#),
        ("google", r#"{"searchInformation": {"totalResults": "0"}}"#),
        ("tavily", r#"{"results": []}"#),
    ] {
        assert_eq!(told(provider, (200, "", body.to_owned())).await, "[]", "{provider}");
    }
    let error = search("duckduckgo", "http://127.0.0.1:1").search(&call(), &query(" \u{200b}\n")).await.unwrap_err();
    assert_eq!(error.to_string(), "the query is empty; say what to search for");
}

#[test]
fn settings_are_checked_before_the_first_search() {
    let told = |provider: &str, base: Option<&str>| {
        let settings =
            SearchConfig { provider: provider.into(), base_url: base.map(Into::into), ..SearchConfig::default() };
        SearchClient::new(&settings, |_| None).map(|it| it.provider().name()).map_err(|error: Error| error.to_string())
    };
    let needs = |text: &str| Err(text.to_owned());
    assert_eq!(told("auto", None), Ok("duckduckgo"));
    assert_eq!(told("", None), Ok("duckduckgo"));
    assert_eq!(
        told("exa", None),
        needs("Exa needs a key, and the variable EXA_API_KEY holds none; set it, or choose another search.provider")
    );
    assert_eq!(
        told("searxng", None),
        needs("SearXNG has no address of its own; set search.base_url to that of a server")
    );
    assert_eq!(
        told("bing", None),
        needs("no search provider `bing`; there are auto, exa, duckduckgo, searxng, brave, google, tavily")
    );
    assert_eq!(
        told("searxng", Some("file:///etc")),
        needs("`file:///etc` is not the address of a service: it must begin with http:// or https://")
    );
    let with_key =
        SearchClient::new(&SearchConfig::default(), |name| (name == "EXA_API_KEY").then(|| "k".to_owned())).unwrap();
    assert_eq!(with_key.provider().name(), "exa");
}
