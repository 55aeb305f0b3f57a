//! What goes, and what stays.

use serde_json::json;

use super::*;

fn clean(text: &str) -> String {
    Redactor::standard().redact_text(text).into_owned()
}

#[test]
fn keys_of_every_make_go() {
    let jwt = "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0.dozjgNryP4J3jVmNHl0w5N_XgL0n3I9PlFUP0THsR8U";
    for key in [
        "sk-proj-abcdefghij0123456789ABCDEFGHIJ",
        "sk-ant-api03-abcdefghij0123456789",
        "ghp_0123456789abcdefghijABCDEFGHIJ012345",
        "github_pat_11AAAAAAA0abcdefghijkl_0123456789",
        "AKIAIOSFODNN7ABCDEFG",
        "xoxb-123456789012-abcdefGHIJKL",
        "AIzaSyA1234567890abcdefghijklmnopqrstuv",
        "glpat-abcdefghij0123456789",
        "npm_0123456789abcdefghijABCDEFGHIJ012345",
        "hf_abcdefghij0123456789ABCDEFGHIJ0123",
        jwt,
    ] {
        assert_eq!(clean(&format!("key {key}, ok")), "key [REDACTED], ok");
    }
}

#[test]
fn what_stands_behind_a_telling_word_goes() {
    for (text, wanted) in [
        ("password=hunter2", "password=[REDACTED]"),
        ("DB_PASSWORD=correcthorse\nA=b", "DB_PASSWORD=[REDACTED]\nA=b"),
        ("export API_KEY=abcdefgh", "export API_KEY=[REDACTED]"),
        (r#"{"api_key": "a1b2c3d4"}"#, r#"{"api_key": "[REDACTED]"}"#),
        (r#"{\"api_key\": \"a1b2c3d4\"}"#, r#"{\"api_key\": \"[REDACTED]\"}"#),
        ("secretKey: \"a1b2c3d4\"", "secretKey: \"[REDACTED]\""),
        ("client_secret: 'x8!kfj32'", "client_secret: '[REDACTED]'"),
        ("password: S3cr3tPass99", "password: [REDACTED]"),
        ("https://x.org/?access_token=abc123def&a=1", "https://x.org/?access_token=[REDACTED]&a=1"),
        ("Authorization: Bearer abcdef0123456789abcdef", "Authorization: Bearer [REDACTED]"),
        ("Authorization: Basic dXNlcjpwYXNzd29yZDE=", "Authorization: Basic [REDACTED]"),
        ("mysql --password hunter22 db", "mysql --password [REDACTED] db"),
        ("postgres://app:s3cr3t@db/x", "postgres://app:[REDACTED]@db/x"),
        ("https://0123456789abcdefghij@github.com/a", "https://[REDACTED]@github.com/a"),
        ("aws_secret_access_key = wJalrXUtnFEMI/K7MDENG/bPxRfiCY", "aws_secret_access_key = [REDACTED]"),
    ] {
        assert_eq!(clean(text), wanted);
    }
}

#[test]
fn a_private_key_goes_whole() {
    let pem = format!(
        "a\n-----BEGIN RSA PRIVATE KEY-----\n{}\n{}=\n-----END RSA PRIVATE KEY-----\nb",
        "Ab1+".repeat(16),
        "Cd/2".repeat(5)
    );
    assert_eq!(clean(&pem), "a\n-----BEGIN RSA PRIVATE KEY-----[REDACTED]-----END RSA PRIVATE KEY-----\nb");
    let cut = format!("-----BEGIN PRIVATE KEY-----\n{}", "Ab1+".repeat(16));
    assert_eq!(clean(&cut), "-----BEGIN PRIVATE KEY-----[REDACTED]");
}

#[test]
fn ids_and_hashes_stay() {
    for text in [
        "task 550e8400-e29b-41d4-a716-446655440000 done",
        "evt_550e8400-e29b-41d4-a716-446655440000",
        "note-550e8400-e29b-41d4-a716-446655440000",
        r#"{"schedule_id": "550e8400-e29b-41d4-a716-446655440000", "token": "550e8400-e29b-41d4-a716-446655440000"}"#,
        "commit 9fceb02d0ae598e95dc970b74767f19372d61af8",
        "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
        "integrity sha512-z5T0uUz1QkX0VQ0p8r2F3qk6m6m1n8b7c6x5z4a3s2d1f0==",
        "/tmp/helve/0123456789abcdef0123456789abcdef.txt",
    ] {
        assert_eq!(clean(text), text);
    }
}

#[test]
fn ordinary_code_stays() {
    for text in [
        "token = next_token()",
        "let token = lexer.next_token2();",
        "password: String,",
        "pub password: Option<String>,",
        "secret_key=os.environ[\"KEY1\"]",
        "api_key = os.getenv('API_KEY_2')",
        "password = config.password",
        "login(user=user, password=password1)",
        "const token = process.env.TOKEN1;",
        "API_KEY=${API_KEY}",
        "API_KEY=<your key 1>",
        "\"password\": \"Enter your password\"",
        "\"password\": {\"type\": \"string\"}",
        "if token == \"if1\" {",
        "Token::Ident2 => x",
        "max_tokens: 4096, token: 42",
        "token: \"PLUS\"",
        "the bearer of good news will be there",
        "basic understanding of things12345678",
        "git clone ssh://git@github.com/a/b",
        "http://localhost:8080/@x",
        ".sk-folding-cube-container-wide {",
        "if text.contains(\"-----BEGIN RSA PRIVATE KEY-----\") {",
        "mask-password-2",
        "hf_ = a1b2c3d4e5",
        "the token is used by parser2",
    ] {
        assert_eq!(clean(text), text);
    }
}

#[test]
fn configured_secrets_go_wherever_they_are() {
    let scrub = Redactor::with_secrets(vec!["open sesame".into(), "open".into(), "ab".into()]);
    assert_eq!(scrub.redact_text("say open sesame, opened, ab"), "say [REDACTED], [REDACTED]ed, ab");
    assert_eq!(Redactor::disabled().redact_text("password=hunter2"), "password=hunter2");
}

#[test]
fn data_and_its_json_stay_the_same() {
    let mut reply = Reply::json(
        json!({ "password": "hunter2", "list": ["x", "ghp_0123456789abcdefghijABCDEFGHIJ012345"], "id": 5 }),
    );
    Redactor::standard().redact_reply(&mut reply);
    let wanted = json!({ "password": "[REDACTED]", "list": ["x", "[REDACTED]"], "id": 5 });
    assert_eq!((reply.text, reply.data), (wanted.to_string(), Some(wanted)));
}

#[test]
fn clean_text_is_not_copied() {
    assert!(matches!(Redactor::standard().redact_text("nothing to see here, token or not"), Cow::Borrowed(_)));
}

proptest::proptest! {
    #[test]
    fn no_text_is_too_strange(text in "(password|token|sk-|://|Bearer |-----BEGIN |=|\"|é|[ -~]){0,30}") {
        let once = clean(&text);
        proptest::prop_assert_eq!(clean(&once), once);
    }
}

#[test]
fn what_is_clean_is_what_cleaning_leaves_alone() {
    let scrub = Redactor::with_secrets(vec!["correct horse".into()]).with_canaries(&["CANARY-12345678".into()]);
    for value in [
        json!({ "path": "src/main.rs", "limit": 1, "all": [null, true, "plain words"] }),
        json!({ "password": "hunter2hunter2" }),
        json!({ "env": { "API_KEY": "a1b2c3d4e5f6" } }),
        json!(["AKIAIOSFODNN7ABCDEFG"]),
        json!({ "command": "echo correct horse" }),
        json!({ "text": "CANARY-12345678" }),
        json!("a token of thanks"),
    ] {
        assert_eq!(scrub.is_recordable(&value), scrub.redacted(value.clone()) == value, "{value}");
    }
}
