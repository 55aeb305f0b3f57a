//! Lines of an MCP client.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    // Calls of tools have a time limit, so they need a clock; what they would wait for is dropped with the runtime.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async { helve_mcp::trials::server(data, helve_dialects::by_name("solo").expect("a dialect")) });
});
