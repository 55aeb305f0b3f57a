use helve_macros::tool;

#[tool(none)]
async fn echo<T>(value: T) -> String {
    String::new()
}

struct Holder;

impl Holder {
    #[tool(none)]
    async fn hold(&self, value: String) -> String {
        value
    }
}

fn main() {}
