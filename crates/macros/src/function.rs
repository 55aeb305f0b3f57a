//! Parses the function under `#[tool]`, and reports why a function cannot become a tool.

use proc_macro2::TokenStream;
use quote::{ToTokens, format_ident, quote};
use syn::{
    Attribute, FnArg, GenericArgument, Ident, ItemFn, Pat, PatType, PathArguments, ReturnType, Type, ext::IdentExt,
    spanned::Spanned,
};

/// A function that can become a tool.
pub(crate) struct Function<'a> {
    item: &'a ItemFn,
    /// The name of the struct.
    pub(crate) tool: Ident,
    pub(crate) fields: Vec<Field<'a>>,
    /// Whether it takes the call.
    pub(crate) call: bool,
    /// Its parameters in order.
    order: Vec<Parameter<'a>>,
    /// The output type on success.
    pub(crate) output: &'a Type,
    /// Whether it returns a `Result`.
    pub(crate) fallible: bool,
}

/// A parameter of the function.
enum Parameter<'a> {
    /// The call itself.
    Call,
    /// The value of a field.
    Owned(&'a Ident),
    /// A `&str` from a field that is a `String`.
    Str(&'a Ident),
    /// An `Option<&str>` from a field that is an `Option<String>`.
    OptionalStr(&'a Ident),
}

/// One parameter that comes from JSON.
pub(crate) struct Field<'a> {
    attributes: Vec<&'a Attribute>,
    pub(crate) ident: &'a Ident,
    /// The type that owns its value.
    ty: TokenStream,
}

impl ToTokens for Field<'_> {
    fn to_tokens(&self, tokens: &mut TokenStream) {
        let Self { attributes, ident, ty } = self;
        tokens.extend(quote!(#(#attributes)* pub #ident: #ty));
    }
}

impl<'a> Function<'a> {
    /// Parses a function and refuses types that JSON cannot represent.
    pub(crate) fn read(item: &'a ItemFn) -> syn::Result<Self> {
        let signature = &item.sig;
        if signature.asyncness.is_none() {
            return refuse(signature.fn_token, "#[tool] can only be applied to async functions");
        }
        if !signature.generics.params.is_empty() || signature.generics.where_clause.is_some() {
            return refuse(
                &signature.generics,
                "#[tool] does not support generic functions: a model sends one shape only",
            );
        }
        if let Some(other) = &signature.unsafety {
            return refuse(other, "a tool is a safe function: anything may be sent to it");
        }
        let (output, fallible) = output(item)?;
        let mut function = Self {
            item,
            tool: tool(&signature.ident)?,
            fields: Vec::new(),
            call: false,
            order: Vec::new(),
            output,
            fallible,
        };
        for argument in &signature.inputs {
            match argument {
                FnArg::Receiver(it) => return refuse(it, "#[tool] does not support methods with self receivers"),
                FnArg::Typed(it) => function.parameter(it)?,
            }
        }
        Ok(function)
    }

    fn parameter(&mut self, argument: &'a PatType) -> syn::Result<()> {
        let Pat::Ident(pattern) = &*argument.pat else {
            return refuse(&argument.pat, "parameters must use identifier bindings: the model needs a name to send");
        };
        if pattern.by_ref.is_some() || pattern.subpat.is_some() {
            return refuse(pattern, "parameters must use identifier bindings: the model needs a name to send");
        }
        if is_call(&argument.ty) {
            if self.call {
                return refuse(argument, "the call is given once");
            }
            self.call = true;
            self.order.push(Parameter::Call);
            return Ok(());
        }
        let ident = &pattern.ident;
        let (ty, parameter) = if is_str(&argument.ty) {
            (quote!(::std::string::String), Parameter::Str(ident))
        } else if optional(&argument.ty).is_some_and(is_str) {
            (quote!(::core::option::Option<::std::string::String>), Parameter::OptionalStr(ident))
        } else {
            sendable(&argument.ty)?;
            (argument.ty.to_token_stream(), Parameter::Owned(ident))
        };
        let attributes: Vec<&Attribute> = argument.attrs.iter().collect();
        let known = ["doc", "serde", "schemars", "cfg"];
        if let Some(other) = attributes.iter().find(|it| !known.iter().any(|known| it.path().is_ident(known))) {
            return refuse(other, "a parameter takes doc comments, #[serde(…)] and #[schemars(…)] only");
        }
        self.fields.push(Field { attributes, ident, ty });
        self.order.push(parameter);
        Ok(())
    }

    /// The doc comment and `cfg` attributes of the function, for the struct.
    pub(crate) fn docs(&self) -> impl Iterator<Item = &'a Attribute> {
        self.item.attrs.iter().filter(|it| it.path().is_ident("doc") || it.path().is_ident("cfg"))
    }

    /// The `cfg` attributes of the function, for the generated items.
    pub(crate) fn conditions(&self) -> impl Iterator<Item = &'a Attribute> {
        self.item.attrs.iter().filter(|it| it.path().is_ident("cfg"))
    }

    /// The function without attributes that only the struct uses.
    pub(crate) fn kept(&self) -> TokenStream {
        let mut item = self.item.clone();
        for argument in &mut item.sig.inputs {
            if let FnArg::Typed(argument) = argument {
                argument.attrs.retain(|it| it.path().is_ident("cfg"));
            }
        }
        quote! {
            #[allow(clippy::unused_async, clippy::needless_pass_by_value, clippy::too_many_arguments)]
            #item
        }
    }

    /// The arguments of the function call.
    pub(crate) fn arguments(&self, call: Option<&Ident>) -> Vec<TokenStream> {
        let given = |parameter: &Parameter<'_>| match parameter {
            Parameter::Call => quote!(#call),
            Parameter::Owned(field) => quote!(#field),
            Parameter::Str(field) => quote!(&#field),
            Parameter::OptionalStr(field) => quote!(#field.as_deref()),
        };
        self.order.iter().map(given).collect()
    }
}

/// `word_count` → `WordCount`.
fn tool(name: &Ident) -> syn::Result<Ident> {
    let plain = name.unraw().to_string();
    let capital = |word: &str| {
        let mut letters = word.chars();
        letters.next().map(|first| first.to_uppercase().chain(letters).collect::<String>()).unwrap_or_default()
    };
    let camel: String = plain.split('_').map(capital).collect();
    if !camel.starts_with(char::is_alphabetic) {
        return refuse(name, "a tool's name starts with a letter");
    }
    if camel == plain {
        return refuse(name, "a tool's function is named in lower case; its struct has the name in camel case");
    }
    Ok(format_ident!("{camel}", span = name.span()))
}

fn output(item: &ItemFn) -> syn::Result<(&Type, bool)> {
    let ReturnType::Type(_, ty) = &item.sig.output else {
        return refuse(
            &item.sig.ident,
            "say what comes back, such as `-> Result<String>`: the model waits for an answer",
        );
    };
    if let Type::Path(path) = &**ty
        && let Some(last) = path.path.segments.last()
        && last.ident == "Result"
    {
        if let PathArguments::AngleBracketed(arguments) = &last.arguments
            && let Some(GenericArgument::Type(good)) = arguments.args.first()
        {
            return Ok((good, true));
        }
        return refuse(ty, "say what comes back when all is well: `Result<String>`");
    }
    Ok((ty, false))
}

fn is_call(ty: &Type) -> bool {
    let Type::Reference(reference) = ty else { return false };
    let Type::Path(path) = &*reference.elem else { return false };
    reference.mutability.is_none() && path.path.segments.last().is_some_and(|it| it.ident == "Call")
}

/// Whether a type is `&str`, without a lifetime that a call could not have.
fn is_str(ty: &Type) -> bool {
    let Type::Reference(reference) = ty else { return false };
    let short = reference.lifetime.as_ref().is_none_or(|it| it.ident == "_");
    short && reference.mutability.is_none() && matches!(&*reference.elem, Type::Path(it) if it.path.is_ident("str"))
}

/// The type inside an `Option`.
fn optional(ty: &Type) -> Option<&Type> {
    let Type::Path(path) = ty else { return None };
    let last = path.path.segments.last().filter(|it| it.ident == "Option")?;
    let PathArguments::AngleBracketed(arguments) = &last.arguments else { return None };
    match arguments.args.first()? {
        GenericArgument::Type(inner) => Some(inner),
        _ => None,
    }
}

/// Refuses types that JSON cannot represent, at any depth.
fn sendable(ty: &Type) -> syn::Result<()> {
    match ty {
        Type::Reference(it) if matches!(&*it.elem, Type::Path(path) if path.path.is_ident("str")) => {
            refuse(ty, "use `String` here: only `&str` and `Option<&str>` without a lifetime are borrowed")
        }
        Type::Reference(_) => {
            refuse(ty, "a parameter owns its value: use the type without `&` (only `&str` and `&Call` are borrowed)")
        }
        Type::Path(path) => {
            let arguments = path.path.segments.iter().filter_map(|it| match &it.arguments {
                PathArguments::AngleBracketed(it) => Some(&it.args),
                _ => None,
            });
            for argument in arguments.flatten() {
                if let GenericArgument::Type(inner) = argument {
                    sendable(inner)?;
                }
            }
            Ok(())
        }
        Type::Array(it) => sendable(&it.elem),
        Type::Paren(it) => sendable(&it.elem),
        Type::Group(it) => sendable(&it.elem),
        _ => refuse(
            ty,
            "a parameter is a String, a &str, a bool, a number, an Option, a Vec, a map, or a type of yours that \
             derives Deserialize and JsonSchema",
        ),
    }
}

fn refuse<T>(at: impl Spanned + ToTokens, text: &str) -> syn::Result<T> {
    Err(syn::Error::new_spanned(at, text))
}
