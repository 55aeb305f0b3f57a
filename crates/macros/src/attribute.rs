//! Parses the arguments of `#[tool(…)]`.

use proc_macro2::TokenStream;
use quote::{format_ident, quote};
use syn::{
    Ident, LitInt, LitStr, Token,
    ext::IdentExt,
    parse::{Parse, ParseStream},
};

/// Effects, name and timeout of a tool.
pub(crate) struct Attribute {
    /// An expression of type `Effects`.
    pub(crate) effects: TokenStream,
    pub(crate) name: Option<String>,
    /// Seconds.
    pub(crate) timeout: Option<u64>,
}

const EFFECTS: [&str; 9] =
    ["reads", "writes", "network", "executes", "spawns", "blocks", "destroys", "session_state", "sends"];

impl Parse for Attribute {
    fn parse(input: ParseStream<'_>) -> syn::Result<Self> {
        let (mut words, mut name, mut timeout) = (Vec::<Ident>::new(), None, None);
        while !input.is_empty() {
            let word = input.call(Ident::parse_any)?;
            let text = word.to_string();
            let twice =
                words.contains(&word) || (text == "name" && name.is_some()) || (text == "timeout" && timeout.is_some());
            if twice {
                return Err(syn::Error::new_spanned(&word, format!("`{text}` is said twice")));
            }
            match text.as_str() {
                "name" => name = Some(tool_name(input)?),
                "timeout" => timeout = Some(seconds(input)?),
                "none" => words.push(word),
                effect if EFFECTS.contains(&effect) => words.push(word),
                _ => return Err(syn::Error::new_spanned(&word, unknown(&text))),
            }
            if !input.is_empty() {
                input.parse::<Token![,]>()?;
            }
        }
        Ok(Self { effects: effects(&words)?, name, timeout })
    }
}

fn effects(words: &[Ident]) -> syn::Result<TokenStream> {
    if words.is_empty() {
        return Ok(quote!(::helve_contract::Effects::UNKNOWN));
    }
    if let Some(none) = words.iter().find(|it| *it == "none") {
        return match words.len() {
            1 => Ok(quote!(::helve_contract::Effects::NONE)),
            _ => Err(syn::Error::new_spanned(none, "`none` stands alone: the other words say that there are effects")),
        };
    }
    let all = words.iter().map(|word| format_ident!("{}", word.to_string().to_uppercase(), span = word.span()));
    Ok(quote!(::helve_contract::Effects::NONE #(.union(::helve_contract::Effects::#all))*))
}

fn unknown(word: &str) -> String {
    format!(
        "`{word}` means nothing here; the words are none, {}, name = \"…\" and timeout = seconds",
        EFFECTS.join(", ")
    )
}

fn tool_name(input: ParseStream<'_>) -> syn::Result<String> {
    input.parse::<Token![=]>()?;
    let name: LitStr = input.parse()?;
    let text = name.value();
    let good = (1..=64).contains(&text.len())
        && text.bytes().all(|it| it.is_ascii_alphanumeric() || matches!(it, b'_' | b'-'));
    if good {
        Ok(text)
    } else {
        Err(syn::Error::new_spanned(name, "a tool's name is 1 to 64 letters, digits, `_` and `-`"))
    }
}

fn seconds(input: ParseStream<'_>) -> syn::Result<u64> {
    input.parse::<Token![=]>()?;
    let seconds: LitInt = input.parse()?;
    match seconds.base10_parse() {
        Ok(value @ 1..) => Ok(value),
        _ => Err(syn::Error::new_spanned(seconds, "a timeout is a number of seconds, 1 or more")),
    }
}
