//! Lines of an MCP client.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| helve_mcp::trials::server(data, helve_dialects::by_name("solo").expect("a dialect")));
