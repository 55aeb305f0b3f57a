use helve_macros::tool;

#[tool(none)]
async fn borrowed(text: &'static str) -> String {
    text.to_owned()
}

#[tool(none)]
async fn bytes(data: &[u8]) -> String {
    data.len().to_string()
}

#[tool(none)]
async fn inside(texts: Vec<Option<&'static str>>) -> String {
    texts.len().to_string()
}

#[tool(none)]
async fn callback(then: fn(u8)) -> String {
    String::new()
}

#[tool(none)]
async fn anything(it: impl ToString) -> String {
    it.to_string()
}

fn main() {}
