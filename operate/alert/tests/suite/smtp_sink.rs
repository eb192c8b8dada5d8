//! A small SMTP sink: it speaks enough of RFC 5321 over TCP to receive e-mails, and is no mail server.
use std::sync::{Arc, Mutex};

use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};

/// One conversation: the client's commands, and the e-mail if it was sent.
#[derive(Clone, Debug, Default)]
pub struct Conversation {
    pub commands: Vec<String>,
    pub email: Option<String>,
}

pub struct SmtpSink {
    pub port: u16,
    conversations: Arc<Mutex<Vec<Conversation>>>,
    task: tokio::task::JoinHandle<()>,
}

impl SmtpSink {
    /// `refuses` is the recipient that is answered with 550.
    pub async fn start(refuses: &'static str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let conversations = Arc::<Mutex<Vec<_>>>::default();
        let kept = conversations.clone();
        let task = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let mut conversation = Conversation::default();
                // A client that hangs up in the middle is what the tests look at, too.
                let _ = converse(stream, refuses, &mut conversation, &kept).await;
                if conversation.email.is_none() {
                    kept.lock().unwrap().push(conversation);
                }
            }
        });
        Self { port, conversations, task }
    }

    pub fn conversations(&self) -> Vec<Conversation> {
        self.conversations.lock().unwrap().clone()
    }
}

impl Drop for SmtpSink {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn converse(
    stream: TcpStream,
    refuses: &str,
    conversation: &mut Conversation,
    kept: &Mutex<Vec<Conversation>>,
) -> std::io::Result<()> {
    let (read, mut write) = stream.into_split();
    let mut lines = BufReader::new(read).lines();
    write.write_all(b"220 sink ESMTP\r\n").await?;
    while let Some(line) = lines.next_line().await? {
        conversation.commands.push(line.clone());
        let answer = match line.split(' ').next().unwrap_or_default() {
            "EHLO" => "250-sink\r\n250 8BITMIME\r\n",
            "RCPT" if !refuses.is_empty() && line.contains(refuses) => {
                "550 no such user, and a secret of the server's\r\n"
            }
            "MAIL" | "RCPT" | "RSET" | "NOOP" => "250 OK\r\n",
            "QUIT" => "221 bye\r\n",
            "DATA" => {
                write.write_all(b"354 go on\r\n").await?;
                let mut email = String::new();
                while let Some(line) = lines.next_line().await? {
                    if line == "." {
                        break;
                    }
                    email.push_str(&line);
                    email.push('\n');
                }
                conversation.email = Some(email);
                // Before the answer: the client goes on with it.
                kept.lock().unwrap().push(conversation.clone());
                "250 queued\r\n"
            }
            _ => "502 not here\r\n",
        };
        write.write_all(answer.as_bytes()).await?;
    }
    Ok(())
}
