//! The `#[tool]` attribute, which generates a tool from an async function.

mod attribute;
mod function;

use proc_macro::TokenStream;
use quote::{format_ident, quote};
use syn::{ItemFn, ext::IdentExt};

use crate::{attribute::Attribute, function::Function};

/// Generates a tool from an async function: a struct of its parameters that implements `helve_contract::Tool`.
///
/// The function stays unchanged. The struct has its name in camel case (`word_count` → `WordCount`). The model reads
/// the doc comments of the function and of its parameters.
///
/// ```text
/// /// Counts the words of a file.
/// #[tool(reads, timeout = 30)]
/// async fn word_count(
///     call: &Call,
///     /// File to count.
///     path: String,
///     /// Stop after so many words.
///     limit: Option<u64>,
/// ) -> Result<String> { … }
///
/// let entry = Entry::of::<WordCount>();
/// ```
///
/// The parentheses contain the effects of a call: `none`, or any of `reads`, `writes`, `network`, `executes`, `spawns`,
/// `blocks`, `destroys`, `session_state`, `sends`. `name = "…"` renames the tool, `timeout = 30` sets its timeout in seconds. A
/// tool without declared effects, such as one under a bare `#[tool]`, counts as privileged and needs approval.
///
/// An optional parameter of type `&Call` receives the call. All others are parsed from JSON: `String`, `&str`, numbers,
/// `bool`, `Option`, `Vec`, maps, and every type that derives `Deserialize` and `JsonSchema`. The function returns a
/// type that converts into a `Reply`, or a `Result` of one.
///
/// The macro also generates a hidden function `__tool_function_decl_<function>()`. It returns the tool's
/// `FunctionDecl`: its name, its description (`None` without a doc comment) and the JSON Schema of its parameters.
#[proc_macro_attribute]
pub fn tool(attribute: TokenStream, item: TokenStream) -> TokenStream {
    expand(attribute.into(), item.into()).unwrap_or_else(syn::Error::into_compile_error).into()
}

fn expand(
    attribute: proc_macro2::TokenStream,
    item: proc_macro2::TokenStream,
) -> syn::Result<proc_macro2::TokenStream> {
    let item: ItemFn = syn::parse2(item)?;
    let function = Function::read(&item)?;
    let Attribute { effects, name, timeout } = syn::parse2(attribute)?;

    let ident = &item.sig.ident;
    let declares = format_ident!("__tool_function_decl_{}", ident.unraw());
    let conditions: Vec<_> = function.conditions().collect();
    let name = name.unwrap_or_else(|| ident.unraw().to_string());
    let timeout = timeout
        .map(|seconds| quote!(const TIMEOUT: ::core::time::Duration = ::core::time::Duration::from_secs(#seconds);));
    let (visible, docs, kept) = (&item.vis, function.docs(), function.kept());
    let (tool, fields, output) = (&function.tool, &function.fields, &function.output);
    let names = fields.iter().map(|field| &field.ident);
    let call = function.call.then(|| format_ident!("call", span = proc_macro2::Span::mixed_site()));
    let taken = call.as_ref().map_or(quote!(_), |call| quote!(#call));
    let given = function.arguments(call.as_ref());
    let run = if function.fallible {
        quote!(#ident(#(#given),*).await.map_err(::core::convert::Into::into))
    } else {
        quote!(::core::result::Result::Ok(#ident(#(#given),*).await))
    };

    Ok(quote! {
        #kept

        #(#docs)*
        #[derive(::helve_contract::serde::Deserialize, ::helve_contract::schemars::JsonSchema)]
        #[serde(crate = "::helve_contract::serde")]
        #[schemars(crate = "::helve_contract::schemars")]
        #[allow(missing_docs)]
        #visible struct #tool { #(#fields),* }

        #(#conditions)*
        #[doc(hidden)]
        #[must_use]
        #[allow(dead_code, unreachable_pub)]
        pub fn #declares() -> ::helve_contract::FunctionDecl {
            ::helve_contract::FunctionDecl::of::<#tool>()
        }

        #(#conditions)*
        impl ::helve_contract::Tool for #tool {
            const NAME: &'static str = #name;
            const EFFECTS: ::helve_contract::Effects = #effects;
            #timeout
            type Output = #output;

            async fn run(self, #taken: &::helve_contract::Call) -> ::helve_contract::Result<Self::Output> {
                let Self { #(#names),* } = self;
                #run
            }
        }
    })
}
