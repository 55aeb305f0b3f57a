//! What an MCP server says.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| helve_mcp::trials::client(data));
