//! Mapping between AMQP tables and headers.
use idempotent_mq::Headers;
use lapin::types::{AMQPValue, FieldTable};

/// Decodes a table for a handler. Text and bytes are unchanged. Numbers are decimal, and timestamps are in seconds. A
/// list becomes several values, an inner table becomes headers with names such as `name.inner`, and void values are
/// left out.
///
/// The mapping cannot be reversed. Copies and dead letters contain the table itself.
pub(crate) fn decode_headers(table: &FieldTable) -> Headers {
    let mut headers = Headers::default();
    for (name, value) in table {
        push(&mut headers, name.as_str(), value);
    }
    headers
}

fn push(headers: &mut Headers, name: &str, value: &AMQPValue) {
    let text = |headers: &mut Headers, text: String| headers.push(name, text);
    match value {
        AMQPValue::Boolean(value) => text(headers, value.to_string()),
        AMQPValue::ShortShortInt(value) => text(headers, value.to_string()),
        AMQPValue::ShortShortUInt(value) => text(headers, value.to_string()),
        AMQPValue::ShortInt(value) => text(headers, value.to_string()),
        AMQPValue::ShortUInt(value) => text(headers, value.to_string()),
        AMQPValue::LongInt(value) => text(headers, value.to_string()),
        AMQPValue::LongUInt(value) => text(headers, value.to_string()),
        AMQPValue::LongLongInt(value) => text(headers, value.to_string()),
        AMQPValue::Float(value) => text(headers, value.to_string()),
        AMQPValue::Double(value) => text(headers, value.to_string()),
        AMQPValue::DecimalValue(value) => text(headers, format!("{}e-{}", value.value, value.scale)),
        AMQPValue::Timestamp(value) => text(headers, value.to_string()),
        AMQPValue::ShortString(value) => headers.push(name, value.as_str()),
        AMQPValue::LongString(value) => headers.push(name, value.as_bytes()),
        AMQPValue::ByteArray(value) => headers.push(name, value.as_slice()),
        AMQPValue::FieldArray(values) => values.as_slice().iter().for_each(|value| push(headers, name, value)),
        AMQPValue::FieldTable(table) => {
            for (inner, value) in table {
                push(headers, &format!("{name}.{inner}"), value);
            }
        }
        AMQPValue::Void => {}
    }
}

/// Returns the value of an integer of any width, of a timestamp, or of a decimal text.
pub(crate) fn integer(value: &AMQPValue) -> Option<i64> {
    Some(match value {
        AMQPValue::ShortShortInt(value) => (*value).into(),
        AMQPValue::ShortShortUInt(value) => (*value).into(),
        AMQPValue::ShortInt(value) => (*value).into(),
        AMQPValue::ShortUInt(value) => (*value).into(),
        AMQPValue::LongInt(value) => (*value).into(),
        AMQPValue::LongUInt(value) => (*value).into(),
        AMQPValue::LongLongInt(value) => *value,
        AMQPValue::Timestamp(value) => i64::try_from(*value).ok()?,
        AMQPValue::LongString(value) => std::str::from_utf8(value.as_bytes()).ok()?.parse().ok()?,
        _ => return None,
    })
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn values_are_decoded_as_text_or_bytes_and_lists_as_several_values() {
        let mut inner = FieldTable::default();
        inner.insert("a".into(), AMQPValue::ShortInt(-3));
        let list = vec![AMQPValue::LongString("x".into()), AMQPValue::LongUInt(7)];
        let mut table = FieldTable::default();
        table.insert("bytes".into(), AMQPValue::ByteArray(vec![0, 255].into()));
        table.insert("list".into(), AMQPValue::FieldArray(list.into()));
        table.insert("table".into(), AMQPValue::FieldTable(inner));
        table.insert("void".into(), AMQPValue::Void);
        let headers = decode_headers(&table);
        assert_eq!(headers.first("bytes"), Some(&[0, 255][..]));
        assert_eq!(headers.all("list").collect::<Vec<_>>(), [b"x", b"7"]);
        assert_eq!((headers.first("table.a"), headers.first("void")), (Some(&b"-3"[..]), None));
    }

    #[test]
    fn an_integer_of_any_width_is_read() {
        let small = [
            AMQPValue::ShortShortInt(-3),
            AMQPValue::ShortInt(-3),
            AMQPValue::LongInt(-3),
            AMQPValue::LongLongInt(-3),
            AMQPValue::LongString("-3".into()),
        ];
        assert!(small.iter().all(|value| integer(value) == Some(-3)));
        let large = [
            AMQPValue::ShortShortUInt(200),
            AMQPValue::ShortUInt(200),
            AMQPValue::LongUInt(200),
            AMQPValue::Timestamp(200),
        ];
        assert!(large.iter().all(|value| integer(value) == Some(200)));
        assert_eq!([AMQPValue::Timestamp(u64::MAX), AMQPValue::Void].map(|value| integer(&value)), [None, None]);
    }
}
