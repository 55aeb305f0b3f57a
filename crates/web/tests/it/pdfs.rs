//! PDF files, made here by hand.

use std::ops::RangeInclusive;

use helve_contract::{Error, ports::Documents};

use crate::desk::{call, reader, wait};

/// A PDF of these objects, numbered from 1; the first is the catalogue.
fn pdf(objects: &[String]) -> Vec<u8> {
    let mut file = b"%PDF-1.7\n".to_vec();
    let mut places = Vec::new();
    for (n, object) in objects.iter().enumerate() {
        places.push(file.len());
        file.extend(format!("{} 0 obj\n{object}\nendobj\n", n + 1).bytes());
    }
    let start = file.len();
    file.extend(format!("xref\n0 {}\n0000000000 65535 f \n", objects.len() + 1).bytes());
    for place in places {
        file.extend(format!("{place:010} 00000 n \n").bytes());
    }
    let size = objects.len() + 1;
    file.extend(format!("trailer\n<< /Size {size} /Root 1 0 R >>\nstartxref\n{start}\n%%EOF\n").bytes());
    file
}

fn stream(dict: &str, content: &str) -> String {
    format!("<< {dict} /Length {} >>\nstream\n{content}\nendstream", content.len())
}

/// A PDF with a page for each content stream, all in Helvetica as `F1` and `extra` as `F2`.
pub(crate) fn pages(contents: &[&str], extra: &[String]) -> Vec<u8> {
    let kids: Vec<_> = (0..contents.len()).map(|n| format!("{} 0 R", 4 + extra.len() + 2 * n)).collect();
    let mut objects = vec![
        "<< /Type /Catalog /Pages 2 0 R >>".to_owned(),
        format!("<< /Type /Pages /Count {} /Kids [{}] >>", kids.len(), kids.join(" ")),
        "<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica /Encoding /WinAnsiEncoding >>".to_owned(),
    ];
    objects.extend_from_slice(extra);
    let second = if extra.is_empty() { "" } else { "/F2 4 0 R" };
    for content in contents {
        let next = objects.len() + 2;
        objects.push(format!(
            "<< /Type /Page /Parent 2 0 R /MediaBox [0 0 612 792] /Contents {next} 0 R \
             /Resources << /Font << /F1 3 0 R {second} >> >> >>"
        ));
        objects.push(stream("", content));
    }
    pdf(&objects)
}

fn read(bytes: Vec<u8>, range: Option<RangeInclusive<u32>>) -> Result<(Vec<(u32, String)>, u32), String> {
    wait(reader().pdf(&call(), bytes, range)).map(|it| (it.pages, it.total)).map_err(|error| error.to_string())
}

fn one(content: &str) -> String {
    read(pages(&[content], &[]), None).unwrap().0[0].1.clone()
}

#[test]
fn reads_lines_words_and_paragraphs() {
    let content = "BT /F1 12 Tf 72 700 Td (Dear reader,) Tj 0 -14 Td [(this is a)-300(line)] TJ 0 -40 Td (Bye) Tj ET";
    assert_eq!(one(content), "Dear reader,\nthis is a line\n\nBye");
}

#[test]
fn knows_the_standard_encoding() {
    assert_eq!(one("BT /F1 12 Tf 72 700 Td (caf\\351 \\223na\\357ve\\224 \\200 5) Tj ET"), "café “naïve” € 5");
}

#[test]
fn reads_codes_by_their_unicode_map() {
    let cmap = "/CIDInit /ProcSet findresource begin 12 dict begin begincmap /CMapName /X def /CMapType 2 def \
                1 begincodespacerange <0000> <ffff> endcodespacerange 2 beginbfchar <0001> <03A9> <0002> <00660069> endbfchar \
                1 beginbfrange <0010> <0012> <0061> endbfrange endcmap end end";
    let font = [
        "<< /Type /Font /Subtype /Type0 /BaseFont /X /Encoding /Identity-H /DescendantFonts [5 0 R] /ToUnicode 7 0 R >>"
            .to_owned(),
        "<< /Type /Font /Subtype /CIDFontType2 /BaseFont /X /CIDSystemInfo << /Registry (Adobe) /Ordering (Identity) \
         /Supplement 0 >> /FontDescriptor 6 0 R /DW 500 /CIDToGIDMap /Identity >>"
            .to_owned(),
        "<< /Type /FontDescriptor /FontName /X /Flags 4 /FontBBox [0 0 1000 1000] /ItalicAngle 0 /Ascent 800 \
         /Descent -200 /CapHeight 700 /StemV 80 >>"
            .to_owned(),
        stream("", cmap),
    ];
    let bytes = pages(&["BT /F2 12 Tf 72 700 Td <00010002001000110012> Tj ET"], &font);
    assert_eq!(read(bytes, None).unwrap().0[0].1, "Ωfiabc");
}

#[test]
fn gives_the_pages_that_were_asked_for_and_no_others() {
    let contents: Vec<String> = (1..=23).map(|n| format!("BT /F1 12 Tf 72 700 Td (page {n}) Tj ET")).collect();
    let contents: Vec<&str> = contents.iter().map(String::as_str).collect();
    let file = pages(&contents, &[]);
    let some = |range| read(file.clone(), range);
    assert_eq!(some(Some(2..=3)), Ok((vec![(2, "page 2".into()), (3, "page 3".into())], 23)));
    assert_eq!(some(Some(23..=40)), Ok((vec![(23, "page 23".into())], 23)));
    let all = "the PDF could not be read: it has 23 pages; ask for a range of at most 20, such as 1-20";
    assert_eq!([some(None), some(Some(1..=21))], [Err(all.to_owned()), Err(all.to_owned())]);
    assert_eq!(
        some(Some(24..=25)).unwrap_err(),
        "the PDF could not be read: it has 23 pages, and page 24 was asked for"
    );
}

#[test]
fn says_what_is_wrong_with_what_is_no_pdf() {
    for bytes in [b"".to_vec(), b"hello".to_vec(), b"%PDF-1.7\n%%EOF".to_vec(), vec![0; 5000]] {
        assert_eq!(read(bytes, None).unwrap_err(), "the PDF could not be read: it is not a PDF file, or a damaged one");
    }
}

#[test]
fn survives_what_nests_without_end() {
    let deep = format!("{}{}", "[".repeat(200_000), "]".repeat(200_000));
    let file = pages(&[&format!("{deep} TJ BT /F1 12 Tf (x) Tj ET")], &[]);
    // Whatever the parser makes of it, this process goes on and has an answer.
    let _ = read(file, None);
    let pages = "<< /Type /Pages /Count 1 /Kids [2 0 R] >>".to_owned();
    let _ = read(pdf(&["<< /Type /Catalog /Pages 2 0 R >>".to_owned(), pages]), None);
}

#[test]
fn reads_a_torn_file_as_far_as_it_goes() {
    let mut file = pages(&["BT /F1 12 Tf 72 700 Td (still here) Tj ET"], &[]);
    file.truncate(file.len() - 60);
    assert_eq!(read(file, None).unwrap().0[0].1, "still here");
}

#[test]
fn refuses_a_password_in_words() {
    let mut objects = vec![
        "<< /Type /Catalog /Pages 2 0 R >>".to_owned(),
        "<< /Type /Pages /Count 0 /Kids [] >>".to_owned(),
        format!("<< /Filter /Standard /V 2 /R 3 /Length 128 /P -44 /O <{0}> /U <{0}> >>", "5a".repeat(32)),
    ];
    objects.push(String::from("null"));
    let text = String::from_utf8(pdf(&objects)).unwrap();
    let locked = text.replace("/Root 1 0 R", "/Root 1 0 R /Encrypt 3 0 R /ID [<00112233> <00112233>]");
    assert_eq!(
        read(locked.into_bytes(), None).unwrap_err(),
        "the PDF could not be read: it is encrypted with a password; ask for a copy without one"
    );
}

#[test]
fn stops_when_the_caller_gives_up() {
    let call = call();
    call.cancel.cancel();
    let said = wait(reader().pdf(&call, pages(&["BT ET"], &[]), None));
    assert!(matches!(said, Err(Error::Cancelled)), "{said:?}");
}

#[test]
fn says_so_when_the_child_dies() {
    let reader = helve_web::DocumentReader::with_program("/bin/false");
    let said = wait(reader.pdf(&call(), b"%PDF".to_vec(), None)).unwrap_err().to_string();
    assert_eq!(said, "the PDF could not be read: the parser gave up on it");
}
