use helve_macros::tool;

#[tool(none)]
async fn sum((left, right): (i64, i64)) -> String {
    (left + right).to_string()
}

fn main() {}
