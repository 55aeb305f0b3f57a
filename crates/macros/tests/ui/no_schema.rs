use helve_macros::tool;

struct Size;

#[tool(none)]
async fn measure(size: Size) -> String {
    String::new()
}

fn main() {}
