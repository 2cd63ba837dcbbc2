//! Other pickers that this one asks, and what is to be sent to them.

use std::collections::BTreeMap;

use tokio::sync::mpsc;

use crate::chooser::Asked;
use crate::proto::fleet::{Ask, Asks, PickRequest};

/// Requests of one message at most, so that it stays below the largest message.
pub const ASKS_MAX: usize = 256;

/// The streams to other pickers, by number. `None`: it is not connected.
#[derive(Debug, Default)]
pub struct Owners {
    streams: BTreeMap<u32, Option<Stream>>,
}

#[derive(Debug)]
struct Stream {
    asks: mpsc::Sender<Asks>,
    unsent: Asks,
}

impl Owners {
    /// Another picker is part of the fleet.
    pub fn list(&mut self, picker: u32) {
        self.streams.entry(picker).or_default();
    }

    /// Another picker is not part of the fleet any more.
    pub fn unlist(&mut self, picker: u32) {
        self.streams.remove(&picker);
    }

    /// It takes requests here.
    pub fn connect(&mut self, picker: u32, asks: mpsc::Sender<Asks>) {
        if let Some(stream) = self.streams.get_mut(&picker) {
            *stream = Some(Stream { asks, unsent: Asks::default() });
        }
    }

    /// The connection to it ended.
    pub fn disconnect(&mut self, picker: u32) {
        if let Some(stream) = self.streams.get_mut(&picker) {
            *stream = None;
        }
    }

    /// How many are connected, and how many are not.
    pub fn counts(&self) -> [usize; 2] {
        let connected = self.streams.values().flatten().count();
        [connected, self.streams.len() - connected]
    }

    /// Asks for a request, with the next messages. If the connection has ended since, the rates of the plan have decided already.
    pub fn ask(&mut self, owner: u32, asked: Asked) {
        if let Some(Some(stream)) = self.streams.get_mut(&owner) {
            let timeout = asked.timeout.map_or(0, |timeout| timeout.as_micros());
            let request = PickRequest {
                model: asked.model.unwrap_or_default(),
                rows: asked.rows,
                // Zero would be no timeout.
                timeout_us: match asked.timeout {
                    Some(_) => u64::try_from(timeout).unwrap_or(u64::MAX).max(1),
                    None => 0,
                },
                class: u32::from(asked.class),
                grpc: false,
            };
            stream.unsent.asks.push(Ask { id: asked.key, request: Some(request) });
        }
    }

    /// Says that a request ended, with the next messages.
    pub fn ended(&mut self, owner: u32, key: u64) {
        if let Some(Some(stream)) = self.streams.get_mut(&owner) {
            stream.unsent.ended.push(key);
        }
    }

    /// Sends what is new since the last time. Returns pickers that take no more: they read too slowly.
    pub fn send(&mut self) -> Vec<u32> {
        let mut full = Vec::new();
        for (number, stream) in &mut self.streams {
            let Some(stream) = stream
                .as_mut()
                .filter(|stream| !stream.unsent.asks.is_empty() || !stream.unsent.ended.is_empty())
            else {
                continue;
            };
            let Asks { mut asks, ended, .. } = std::mem::take(&mut stream.unsent);
            let mut messages: Vec<Asks> = Vec::new();
            while asks.len() > ASKS_MAX {
                let rest = asks.split_off(ASKS_MAX);
                messages.push(Asks { asks: std::mem::replace(&mut asks, rest), ..Asks::default() });
            }
            messages.push(Asks { asks, ended, ..Asks::default() });
            if messages.into_iter().any(|message| stream.asks.try_send(message).is_err()) {
                full.push(*number);
            }
        }
        full
    }
}
