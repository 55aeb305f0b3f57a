use helve_macros::tool;

#[tool(reeds)]
async fn misspelt(path: String) -> String {
    path
}

#[tool(none, reads)]
async fn both(path: String) -> String {
    path
}

#[tool(reads, name = "word count")]
async fn named(path: String) -> String {
    path
}

#[tool(reads, timeout = 0)]
async fn hasty(path: String) -> String {
    path
}

fn main() {}
