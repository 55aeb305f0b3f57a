//! Repairs each line of `{"input": "…"}` and prints `{"value": …}` or `{"error": "…"}`.

use std::io::{self, BufRead, Write};

use helve_engine::repair::repair_json;
use serde_json::{Value, json};

fn main() -> io::Result<()> {
    let mut out = io::stdout().lock();
    for line in io::stdin().lock().lines() {
        let line: Value = serde_json::from_str(&line?)?;
        let answer = match repair_json(line["input"].as_str().unwrap_or_default()) {
            Ok(mended) => json!({ "value": mended.value, "risk": format!("{:?}", mended.risk()) }),
            Err(error) => json!({ "error": error }),
        };
        writeln!(out, "{answer}")?;
        out.flush()?;
    }
    Ok(())
}
