//! The web by the settings: who may be reached, by which way, and who searches.

use std::sync::Arc;

use helve_contract::ports::{NoWeb, Web};
use helve_web::{
    Fetcher, Internet, Reader,
    client::{Client, Proxy},
    guard::Guard,
    search::{Search, Settings as Provider},
};

use crate::{config::Settings, remark};

/// The web of a session. Settings that cannot be obeyed are said, and leave the session without it.
pub(crate) fn open(settings: &Settings, reader: Arc<Reader>) -> Arc<dyn Web> {
    match internet(settings, reader) {
        Ok(web) => Arc::new(web),
        Err(error) => {
            remark!("helve: the web is not reached: {error}");
            Arc::new(NoWeb)
        }
    }
}

fn internet(settings: &Settings, reader: Arc<Reader>) -> Result<Internet, String> {
    let proxy = settings.text("web.proxy").map(Proxy::parse).transpose()?;
    let mut guard = Guard::new().allowing(settings.list("web.allow"))?;
    if settings.flag("web.only_allowed") {
        guard = guard.only_listed();
    }
    let mut client = Client::new(guard);
    if let Some(proxy) = proxy.clone() {
        client = client.by_proxy(proxy);
    }
    let web = Internet::new(Fetcher::new(client, reader));
    Ok(match search(settings) {
        Ok(search) => web.with_search(match proxy {
            Some(proxy) => search.by_proxy(proxy),
            None => search,
        }),
        Err(error) => {
            remark!("helve: there are no searches: {error}");
            web
        }
    })
}

fn search(settings: &Settings) -> Result<Search, String> {
    let text = |name: &str| settings.text(name).map(str::to_owned);
    let provider = Provider {
        provider: text("search.provider").unwrap_or_default(),
        base_url: text("search.base_url"),
        key_env: text("search.key_env"),
        engine: text("search.engine"),
    };
    Search::new(&provider, |name| std::env::var(name).ok()).map_err(|error| error.to_string())
}
