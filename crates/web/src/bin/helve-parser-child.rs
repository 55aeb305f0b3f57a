//! Test binary that is only the document parser, which tests start instead of `helve`.

fn main() {
    helve_web::run_parser_if_requested();
    eprintln!("this program is started by others, to read documents for them");
    std::process::exit(2);
}
