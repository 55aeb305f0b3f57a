use helve_macros::tool;

#[tool(reads)]
fn word_count(path: String) -> String {
    path
}

fn main() {}
