use helve_contract::Result;
use helve_macros::tool;

#[tool(none)]
async fn count(text: String) -> Result<usize> {
    Ok(text.len())
}

fn main() {}
