//! The parts of a multipart body (RFC 2046, section 5.1), without the boundary between them. A client that builds its form
//! again chooses another boundary for the same content.
use http::HeaderMap;
use http::header::CONTENT_TYPE;

/// The length of the longest boundary.
const MAX_BOUNDARY: usize = 70;

/// Returns the boundary that the content type names, or `None` if the body is not multipart. Also `None` if two parsers could
/// read different boundaries.
pub(crate) fn boundary(headers: &HeaderMap) -> Option<&str> {
    let mut lines = headers.get_all(CONTENT_TYPE).iter();
    let mut fields = lines.next().filter(|_| lines.next().is_none())?.to_str().ok()?.split(';').map(str::trim);
    let (kind, _) = fields.next()?.split_once('/')?;
    let mut boundaries = fields.filter_map(|field| field.split_once('=')).filter_map(|(name, value)| {
        let unquoted = || value.strip_prefix('"')?.strip_suffix('"');
        name.eq_ignore_ascii_case("boundary").then(|| unquoted().unwrap_or(value))
    });
    let boundary = boundaries.next().filter(|_| boundaries.next().is_none())?;
    let is_plain = boundary.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"'()+_,-./:=? ".contains(&byte));
    let fits = is_plain && (1..=MAX_BOUNDARY).contains(&boundary.len()) && !boundary.ends_with(' ');
    (kind.eq_ignore_ascii_case("multipart") && fits).then_some(boundary)
}

/// Returns the parts of a body, each with its headers. `None` unless each occurrence of the boundary separates parts exactly as
/// RFC 2046 requires: other parsers could read another form differently.
pub(crate) fn parts<'a>(body: &'a [u8], boundary: &str) -> Option<Vec<&'a [u8]>> {
    let delimiter = ["--", boundary].concat().into_bytes();
    let (mut parts, mut rest) = (Vec::new(), body.strip_prefix(&*delimiter)?);
    loop {
        if let Some(end) = rest.strip_prefix(b"--") {
            return matches!(end, b"" | b"\r\n").then_some(parts);
        }
        let content = rest.strip_prefix(b"\r\n")?;
        let length = content.windows(delimiter.len()).position(|bytes| bytes == delimiter)?;
        parts.push(content[..length].strip_suffix(b"\r\n")?);
        rest = &content[length + delimiter.len()..];
    }
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    #[test]
    fn the_boundary_is_read_from_one_unambiguous_content_type() {
        let of = |lines: &[&'static str]| {
            let line = |line: &&'static str| (CONTENT_TYPE, HeaderValue::from_static(line));
            boundary(&lines.iter().map(line).collect()).map(str::to_owned)
        };
        const LONG: &str = "1234567890123456789012345678901234567890123456789012345678901234567890";
        let long: &'static str = format!("multipart/form-data; boundary={LONG}").leak();
        let longer: &'static str = format!("multipart/form-data; boundary={LONG}1").leak();
        for (line, expected) in [
            ("multipart/form-data; boundary=x1", "x1"),
            ("Multipart/Form-Data;charset=utf-8 ;BOUNDARY=\"x 1:?\"", "x 1:?"),
            ("multipart/mixed; boundary=----WebKitFormBoundaryA+b", "----WebKitFormBoundaryA+b"),
            (long, LONG),
        ] {
            assert_eq!(of(&[line]).as_deref(), Some(expected), "{line}");
        }
        for lines in [
            &[][..],
            &["text/plain; boundary=x"],
            &["multipart"],
            &["multipart/form-data"],
            &["multipart/form-data; boundary="],
            &["multipart/form-data; boundary=\"\""],
            &["multipart/form-data; boundary=\"x"],
            &["multipart/form-data; boundary=\"x \""],
            &["multipart/form-data; boundary=x@"],
            &["multipart/form-data; boundary=x; boundary=y"],
            &["multipart/form-data; a=\"b; boundary=x\"; boundary=y"],
            &["multipart/form-data; boundary=x", "multipart/form-data; boundary=x"],
            &[longer],
        ] {
            assert_eq!(of(lines), None, "{lines:?}");
        }
    }

    #[test]
    fn parts_are_split_at_each_boundary() {
        let of = |body: &'static str| parts(body.as_bytes(), "x");
        let two: Vec<&[u8]> = vec![b"a: 1\r\n\r\none", b"\r\n"];
        assert_eq!(of("--x\r\na: 1\r\n\r\none\r\n--x\r\n\r\n\r\n--x--\r\n"), Some(two.clone()));
        assert_eq!(of("--x\r\na: 1\r\n\r\none\r\n--x\r\n\r\n\r\n--x--"), Some(two));
        assert_eq!(of("--x--"), Some(vec![]));
    }

    #[test]
    fn a_form_that_parsers_could_read_differently_has_no_parts() {
        for body in [
            "",
            "--y--",
            "\r\n--x--",
            "--x\n\none\n--x--",
            "--x \r\n\r\none\r\n--x--",
            "--x\r\n\r\none\r\n--x",
            "--x\r\n\r\none\r\n",
            "--x\r\n\r\none\r\n--x--\r\nepilogue",
            // The boundary inside of a line, or with a longer name.
            "--x\r\n\r\none --x\r\n--x--",
            "--x\r\n\r\none\r\n--x1\r\n--x--",
            "--x\r\n\r\none\n--x\r\n\r\ntwo\r\n--x--",
        ] {
            assert_eq!(parts(body.as_bytes(), "x"), None, "{body:?}");
        }
    }
}
