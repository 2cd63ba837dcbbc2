//! Connects to the other pickers and asks them.
//!
//! There is one stream to each of them, which carries requests there and answers back, many in a message under load. It keeps the order
//! of a request and its end, and its silence tells that the other picker stands still.

use std::collections::BTreeMap;
use std::time::Duration;

use tokio::sync::{mpsc, watch};
use tokio_stream::wrappers::ReceiverStream;
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::actor::{Handle, PeerEvent};
use crate::attempts::Attempts;
use crate::follow;
use crate::proto::fleet::picker_client::PickerClient;
use crate::proto::fleet::{Answers, Asks};

/// Messages that wait for a connection at most. One that takes fewer is broken.
const MESSAGES_MAX: usize = 1_024;
/// A stream without a message for this time is broken. Pickers send one every 100 ms at least.
const SILENCE: Duration = Duration::from_secs(5);
/// First and longest pause before a picker is connected again.
const PAUSES: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(1));
/// Largest message.
const MESSAGE_BYTES_MAX: usize = 1 << 20;

/// The other pickers: their addresses as `HOST:PORT`, by number.
pub type Peers = BTreeMap<u32, String>;

/// Follows a list of pickers that changes, until the list ends. `number`: of this one.
pub async fn run(number: u32, mut peers: watch::Receiver<Peers>, picker: Handle) {
    let mut followed: BTreeMap<u32, (String, DropGuard)> = BTreeMap::new();
    loop {
        let current = peers.borrow_and_update().clone();
        followed.retain(|peer, (address, _)| {
            let stays = current.get(peer) == Some(address);
            if !stays {
                picker.peer(*peer, PeerEvent::Unlisted);
            }
            stays
        });
        for (peer, address) in current.into_iter().filter(|(peer, _)| *peer != number) {
            followed.entry(peer).or_insert_with(|| {
                picker.peer(peer, PeerEvent::Listed);
                let stop = CancellationToken::new();
                tokio::spawn(follow_peer(number, (peer, address.clone()), picker.clone(), stop.clone()));
                (address, stop.drop_guard())
            });
        }
        if peers.changed().await.is_err() {
            // The list does not change any more. Its pickers are followed on.
            std::future::pending::<()>().await;
        }
    }
}

/// Opens the stream to a picker again whenever it ends.
async fn follow_peer(number: u32, (peer, address): (u32, String), picker: Handle, stop: CancellationToken) {
    let mut attempts = Attempts::new(PAUSES);
    loop {
        let mut heard = false;
        let ended = tokio::select! {
            () = stop.cancelled() => return,
            ended = ask(number, (peer, &address), &picker, &mut heard) => ended,
        };
        let is_stopping = ended.is_ok();
        picker.peer(peer, PeerEvent::Lost { is_stopping });
        if attempts.ended(heard) {
            let reason = ended.err().unwrap_or_else(|| "it stops".to_owned());
            tracing::warn!(picker = peer, address, reason, "not connected to this picker; connecting again");
        }
        if !attempts.pause(&stop).await {
            return;
        }
    }
}

/// Asks a picker until the stream ends. `Ok`: it stops. Otherwise the reason.
async fn ask(
    number: u32,
    (peer, address): (u32, &str),
    picker: &Handle,
    heard: &mut bool,
) -> Result<(), String> {
    let channel = follow::connect(address).await?;
    let mut client = PickerClient::new(channel).max_decoding_message_size(MESSAGE_BYTES_MAX);
    let (asks, messages) = mpsc::channel(MESSAGES_MAX);
    let first = Asks { from: number, to: peer, ..Asks::default() };
    asks.try_send(first).map_err(|error| error.to_string())?;
    let answers = client.ask(ReceiverStream::new(messages));
    let mut answers = match tokio::time::timeout(SILENCE, answers).await {
        Ok(Ok(answers)) => answers.into_inner(),
        Ok(Err(status)) => return Err(follow::reason_of(&status)),
        Err(_) => return Err("no answer in time".to_owned()),
    };
    let mut asks = Some(asks);
    loop {
        match tokio::time::timeout(SILENCE, answers.message()).await {
            Ok(Ok(Some(Answers { answers }))) => {
                if let Some(asks) = asks.take() {
                    *heard = true;
                    tracing::info!(picker = peer, address, "asking this picker");
                    picker.peer(peer, PeerEvent::Connected(asks));
                }
                picker.peer(peer, PeerEvent::Answers(answers));
            }
            Ok(Ok(None)) => return Ok(()),
            Ok(Err(status)) => return Err(follow::reason_of(&status)),
            Err(_) => return Err("no message in time".to_owned()),
        }
    }
}
