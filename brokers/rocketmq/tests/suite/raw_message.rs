//! Messages of a producer that writes the protocol itself.
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// The flag of a compressed body, and the numbers of the compressions behind it.
pub(crate) const COMPRESSED: u32 = 1;
pub(crate) const ZSTD: u32 = COMPRESSED | 2 << 8;
pub(crate) const ZLIB: u32 = COMPRESSED | 3 << 8;
pub(crate) const UNKNOWN: u32 = COMPRESSED | 7 << 8;

/// The codes of requests.
const SEND_MESSAGE: u32 = 10;
const SEND_BATCH: u32 = 320;

/// Sends a message with these flags to the first queue of a topic. The body is stored as it is.
pub(crate) async fn send_raw(broker: &str, topic: &str, flags: u32, properties: &[(&str, &str)], body: &[u8]) {
    // The separators, as JSON writes them.
    let properties = properties.iter().map(|(name, value)| format!("{name}\\u0001{value}\\u0002")).collect::<String>();
    request(broker, SEND_MESSAGE, topic, flags, &properties, body).await;
}

/// Sends a batch of one message, whose properties may have any bytes.
pub(crate) async fn send_batch(broker: &str, topic: &str, properties: &[u8], body: &[u8]) {
    let (of_body, of_properties) = (u32::try_from(body.len()).unwrap(), u16::try_from(properties.len()).unwrap());
    let length = 22 + of_body + u32::from(of_properties);
    let numbers = [length, 0, 0, 0, of_body].map(u32::to_be_bytes).concat();
    let message = [&numbers[..], body, &of_properties.to_be_bytes(), properties].concat();
    request(broker, SEND_BATCH, topic, 0, "", &message).await;
}

async fn request(broker: &str, code: u32, topic: &str, flags: u32, properties: &str, body: &[u8]) {
    let batch = code == SEND_BATCH;
    let fields = format!(
        r#"{{"producerGroup":"raw","topic":"{topic}","defaultTopic":"TBW102","defaultTopicQueueNums":"4","queueId":"0",
        "sysFlag":"{flags}","bornTimestamp":"0","flag":"0","properties":"{properties}","reconsumeTimes":"0",
        "unitMode":"false","batch":"{batch}"}}"#
    );
    let header = format!(
        r#"{{"code":{code},"language":"OTHER","version":0,"opaque":1,"flag":0,"serializeTypeCurrentRPC":"JSON",
        "extFields":{fields}}}"#
    );
    let length = u32::try_from(header.len()).unwrap();
    let frame = length + 4 + u32::try_from(body.len()).unwrap();
    let mut stream = TcpStream::connect(broker).await.unwrap();
    let lengths = [frame, length].map(u32::to_be_bytes).concat();
    stream.write_all(&[&lengths[..], header.as_bytes(), body].concat()).await.unwrap();
    let mut answer = vec![0; usize::try_from(stream.read_u32().await.unwrap()).unwrap()];
    stream.read_exact(&mut answer).await.unwrap();
    let answer = String::from_utf8_lossy(&answer);
    assert!(answer.contains(r#""code":0"#), "{answer}");
}
