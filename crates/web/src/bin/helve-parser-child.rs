//! Nothing but the parsing stage: the child that tests start instead of the whole product.

fn main() {
    helve_web::run_parser_if_requested();
    eprintln!("this program is started by others, to read documents for them");
    std::process::exit(2);
}
