//! Which domains are wanted: `example.org` means itself and what is beneath it.

use helve_contract::{Error, Result};
use url::{Host, Url};

/// Domains that are wanted, and those that are not.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct DomainFilter {
    pub(super) only: Vec<String>,
    pub(super) without: Vec<String>,
}

impl DomainFilter {
    /// Understands what a model writes for a domain: `example.org`, `*.example.org`, `https://example.org/docs`.
    pub(super) fn new(only: &[String], without: &[String]) -> Result<Self> {
        let read = |names: &[String]| {
            names.iter().take(MAX_DOMAINS).map(|name| parse_domain(name)).collect::<Result<Vec<_>>>()
        };
        Ok(Self { only: read(only)?, without: read(without)? })
    }

    pub(super) fn is_empty(&self) -> bool {
        self.only.is_empty() && self.without.is_empty()
    }

    /// Whether a result of this address is wanted.
    pub(super) fn accepts(&self, url: &Url) -> bool {
        let Some(host) = url.host_str() else { return false };
        let host = host.trim_end_matches('.');
        let in_list = |names: &[String]| names.iter().any(|name| is_beneath(host, name));
        (self.only.is_empty() || in_list(&self.only)) && !in_list(&self.without)
    }

    /// The query with the operators that most engines know: `words (site:a OR site:b) -site:c`.
    pub(super) fn to_query(&self, text: &str) -> String {
        let only: Vec<_> = self.only.iter().map(|name| format!("site:{name}")).collect();
        let mut words = text.to_owned();
        match only.as_slice() {
            [] => {}
            [one] => words.push_str(&format!(" {one}")),
            several => words.push_str(&format!(" ({})", several.join(" OR "))),
        }
        for name in &self.without {
            words.push_str(&format!(" -site:{name}"));
        }
        words
    }
}

/// The most domains of a list.
const MAX_DOMAINS: usize = 50;

/// Whether a host is the domain or beneath it, label by label: `notexample.org` is not beneath `example.org`.
fn is_beneath(host: &str, domain: &str) -> bool {
    host.strip_suffix(domain).is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
}

fn parse_domain(text: &str) -> Result<String> {
    let told = || {
        let text = super::single_line(text, 80);
        Error::failed(format!("`{text}` is not a domain; write it as in example.org"))
    };
    let plain = text.trim().trim_start_matches("*.").trim_start_matches('.');
    let whole = if plain.contains("://") { plain.to_owned() } else { format!("https://{plain}") };
    let url = Url::parse(&whole).map_err(|_| told())?;
    match url.host() {
        Some(Host::Domain(name)) if name.contains('.') => Ok(name.trim_end_matches('.').to_owned()),
        Some(Host::Domain(name)) if !name.is_empty() && name != "*" => Ok(name.to_owned()),
        Some(Host::Ipv4(address)) => Ok(address.to_string()),
        _ => Err(told()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn domains(only: &[&str], without: &[&str]) -> DomainFilter {
        let owned = |names: &[&str]| names.iter().map(|it| (*it).to_owned()).collect::<Vec<_>>();
        DomainFilter::new(&owned(only), &owned(without)).unwrap()
    }

    #[test]
    fn a_domain_is_itself_and_what_is_beneath_it() {
        let wanted = domains(&["Example.org", "https://docs.rs/tokio"], &["ads.example.org"]);
        let seen = [
            "https://example.org/a",
            "https://www.example.org./a",
            "https://notexample.org/",
            "https://example.org.evil.net/",
            "https://x.ads.example.org/",
            "https://docs.rs/",
            "https://example.org@evil.net/",
        ]
        .map(|it| wanted.accepts(&Url::parse(it).unwrap()));
        assert_eq!(seen, [true, true, false, false, false, true, false]);
    }

    #[test]
    fn operators_are_words_of_the_query() {
        assert_eq!(
            domains(&["a.org", "*.b.org"], &["c.org"]).to_query("x y"),
            "x y (site:a.org OR site:b.org) -site:c.org"
        );
        assert_eq!(domains(&["a.org"], &[]).to_query("x"), "x site:a.org");
    }

    #[test]
    fn what_is_not_a_domain_is_said() {
        let error = DomainFilter::new(&["not a domain".to_owned()], &[]).unwrap_err();
        assert_eq!(error.to_string(), "`not a domain` is not a domain; write it as in example.org");
    }
}
