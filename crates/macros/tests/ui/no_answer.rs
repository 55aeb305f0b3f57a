use helve_macros::tool;

#[tool(writes)]
async fn forget(path: String) {
    drop(path);
}

fn main() {}
