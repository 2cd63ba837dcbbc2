//! The service over real connections: a node that sends signals, and gateways of both kinds.

use std::net::SocketAddr;
use std::pin::Pin;

use fleet_core::pick::Settings;
use futures_util::StreamExt as _;
use futures_util::stream::{self, Stream};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::Channel;
use tonic::{Code, Request, Response, Status, Streaming};

use super::*;
use crate::headers::tests::map;
use crate::nodes::Endpoint;
use crate::proto::ext_proc::external_processor_client::ExternalProcessorClient;
use crate::proto::ext_proc::processing_request::Request as Part;
use crate::proto::ext_proc::processing_response::Response as Reply;
use crate::proto::ext_proc::{HttpBody, HttpHeaders, ProcessingRequest, ProcessingResponse};
use crate::proto::fleet::node_signals_server::{NodeSignals, NodeSignalsServer};
use crate::proto::fleet::picker_client::PickerClient;
use crate::proto::fleet::{
    Ask, Asks, DoneRequest, ModelSignals, PickRequest, PickResponse, Signals, WatchRequest,
};

const TIME_MAX: Duration = Duration::from_secs(20);

/// A node with one lane, whose batches take an hour: it is free again only when a request ends. Its streams end
/// with the token.
struct Node(CancellationToken);

#[tonic::async_trait]
impl NodeSignals for Node {
    type WatchStream = Pin<Box<dyn Stream<Item = Result<Signals, Status>> + Send>>;

    async fn watch(&self, _: Request<WatchRequest>) -> Result<Response<Self::WatchStream>, Status> {
        let hour = 3_600_000_000;
        let model = ModelSignals {
            model: "m".to_owned(),
            ready: true,
            lanes: 1,
            row_us: hour,
            single_us: hour,
            max_batch: 1,
            ..ModelSignals::default()
        };
        let first = Signals { complete: true, sequence: 1, models: vec![model], ..Signals::default() };
        let signals = stream::iter([Ok(first)]).chain(stream::pending());
        Ok(Response::new(Box::pin(signals.take_until(self.0.clone().cancelled_owned()))))
    }
}

struct World {
    address: SocketAddr,
    stop: CancellationToken,
    is_ready: Arc<AtomicBool>,
    serving: JoinHandle<Result<(), ServeError>>,
    node: JoinHandle<()>,
    signals: CancellationToken,
}

impl World {
    async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let grpc = listener.local_addr().unwrap().to_string();
        let signals = CancellationToken::new();
        let serving = Server::builder().add_service(NodeSignalsServer::new(Node(signals.clone())));
        let node = tokio::spawn(async move {
            serving.serve_with_incoming(TcpIncoming::from(listener)).await.unwrap();
        });
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let endpoint = Endpoint {
            name: "a".to_owned(),
            http: "127.0.0.1:8000".to_owned(),
            grpc,
            device_type: String::new(),
        };
        let members = watch::channel(Members::fixed(vec![endpoint]).unwrap()).1;
        let options = Options { picker: Settings::default(), ..Options::default() };
        let (stop, is_ready) = (CancellationToken::new(), Arc::new(AtomicBool::new(false)));
        let peers = watch::channel(Peers::new()).1;
        let run = run(listener, options, (members, peers), None, Arc::clone(&is_ready), stop.clone());
        Self { address, stop, is_ready, serving: tokio::spawn(run), node, signals }
    }

    async fn channel(&self) -> Channel {
        Channel::from_shared(format!("http://{}", self.address)).unwrap().connect().await.unwrap()
    }

    /// A client, once the picker has heard the node.
    async fn client(&self) -> PickerClient<Channel> {
        let mut client = PickerClient::new(self.channel().await);
        // Before that, a model that no node has is not known to be unknown.
        while pick(&mut client, "nowhere").await.is_ok() {
            tokio::task::yield_now().await;
        }
        client
    }
}

async fn pick(client: &mut PickerClient<Channel>, model: &str) -> Result<PickResponse, Status> {
    let request = PickRequest { model: model.to_owned(), ..PickRequest::default() };
    client.pick(request).await.map(Response::into_inner)
}

async fn in_time<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(TIME_MAX, future).await.expect("nothing within 20 s")
}

#[tokio::test]
async fn requests_wait_until_a_node_is_free_for_them() {
    let world = World::start().await;
    let mut client = in_time(world.client()).await;
    let first = in_time(pick(&mut client, "m")).await.unwrap();
    assert_eq!((first.endpoints.len(), first.endpoints[0].node.as_str()), (1, "a"));
    assert_eq!(first.endpoints[0].address, "127.0.0.1:8000");
    assert!(first.batch.ends_with("/1") && first.ticket > 0, "{first:?}");

    let mut other = client.clone();
    let mut second = tokio::spawn(async move { pick(&mut other, "m").await });
    // One that leaves takes its request back: the lane goes to the second one.
    let mut other = client.clone();
    let left = tokio::spawn(async move { pick(&mut other, "m").await });
    tokio::select! {
        _ = &mut second => panic!("the node has one lane"),
        answer = pick(&mut client, "nowhere") => assert_eq!(answer.unwrap_err().code(), Code::NotFound),
    }
    left.abort();
    assert!(left.await.unwrap_err().is_cancelled());
    client.done(DoneRequest { ticket: first.ticket }).await.unwrap();
    let second = in_time(second).await.unwrap().unwrap();
    assert_ne!(second.batch, first.batch);
    client.done(DoneRequest { ticket: second.ticket }).await.unwrap();
    assert!(in_time(pick(&mut client, "m")).await.unwrap().ticket > 0);

    let error = client.pick(PickRequest { class: 64, ..PickRequest::default() }).await.unwrap_err();
    assert_eq!((error.code(), error.message()), (Code::InvalidArgument, "class: expected 0 to 63, got 64"));
}

#[tokio::test]
async fn a_request_that_waits_is_answered_when_the_picker_stops() {
    let world = World::start().await;
    let mut client = in_time(world.client()).await;
    assert!(world.is_ready.load(Ordering::Acquire));
    in_time(pick(&mut client, "m")).await.unwrap();
    let mut other = client.clone();
    let mut waiting = tokio::spawn(async move { pick(&mut other, "m").await });
    tokio::select! {
        _ = &mut waiting => panic!("the node has one lane"),
        answer = pick(&mut client, "nowhere") => assert!(answer.is_err()),
    }
    world.stop.cancel();
    let answer = in_time(waiting).await.unwrap().unwrap();
    assert_eq!((answer.endpoints.len(), answer.ticket), (1, 0));
    drop(client);
    in_time(world.serving).await.unwrap().unwrap();
    assert!(!world.is_ready.load(Ordering::Acquire));
}

#[tokio::test]
async fn a_node_that_is_lost_gets_requests_only_as_the_last_choice() {
    let world = World::start().await;
    let mut client = in_time(world.client()).await;
    world.node.abort();
    world.signals.cancel();
    let is_lost = async {
        loop {
            // While the node is heard, its model is refused or waits; a lost one may have any model.
            if pick(&mut client, "nowhere").await.is_ok() {
                return;
            }
            tokio::task::yield_now().await;
        }
    };
    in_time(is_lost).await;
    let answer = in_time(pick(&mut client, "m")).await.unwrap();
    assert_eq!((answer.endpoints.len(), answer.batch.as_str(), answer.ticket), (1, "", 0));
}

#[tokio::test]
async fn a_picker_that_is_not_the_one_meant_refuses_to_be_asked() {
    let world = World::start().await;
    let mut client = PickerClient::new(world.channel().await);
    let asks = |from, to| stream::iter([Asks { from, to, ..Asks::default() }]);
    let error = in_time(client.ask(asks(1, 2))).await.unwrap_err();
    assert_eq!(error.code(), Code::FailedPrecondition);
    assert_eq!(error.message(), "to: expected 0, which is the number of this picker, got 2");
    let error = in_time(client.ask(asks(64, 0))).await.unwrap_err();
    assert_eq!(error.message(), "from: expected 0 to 63 and not 0, got 64");
}

#[tokio::test]
async fn an_asked_picker_answers_declines_and_gives_signs_of_life() {
    let world = World::start().await;
    let mut client = in_time(world.client()).await;
    let (sender, asks) = mpsc::channel(4);
    let ask = |id, model: &str| {
        let request = PickRequest { model: model.to_owned(), ..PickRequest::default() };
        Ask { id, request: Some(request) }
    };
    let first =
        Asks { from: 1, to: 0, asks: vec![ask(7, "m"), ask(8, "nowhere"), ask(9, "m")], ended: Vec::new() };
    sender.send(first).await.unwrap();
    let mut answers = in_time(client.ask(ReceiverStream::new(asks))).await.unwrap().into_inner();
    let mut found = Vec::new();
    let mut signs = 0;
    while found.len() < 2 || signs < 3 {
        let message = in_time(answers.message()).await.unwrap().unwrap();
        signs += u32::from(message.answers.is_empty());
        found.extend(message.answers);
    }
    let by_id = |id| found.iter().find(|answer| answer.id == id);
    assert_eq!(by_id(7).unwrap().nodes, ["a"]);
    let declined = by_id(8).unwrap();
    assert!(declined.nodes.is_empty() && declined.reason.is_empty(), "{declined:?}");
    assert_eq!(by_id(9), None, "the node has one lane");
    sender.send(Asks { ended: vec![7], ..Asks::default() }).await.unwrap();
    let next = async {
        loop {
            let message = answers.message().await.unwrap().unwrap();
            if let Some(answer) = message.answers.into_iter().next() {
                return answer;
            }
        }
    };
    assert_eq!(in_time(next).await.id, 9);
    // The end of the stream is the end of its requests.
    drop((sender, answers));
    assert_eq!(in_time(pick(&mut client, "m")).await.unwrap().endpoints.len(), 1);
}

struct Exchange {
    parts: mpsc::Sender<ProcessingRequest>,
    replies: Streaming<ProcessingResponse>,
}

impl Exchange {
    async fn open(channel: Channel) -> Self {
        let (parts, sent) = mpsc::channel(4);
        let mut client = ExternalProcessorClient::new(channel);
        let replies = in_time(client.process(ReceiverStream::new(sent))).await.unwrap().into_inner();
        Self { parts, replies }
    }

    async fn send(&self, part: Part) {
        self.parts.send(ProcessingRequest { request: Some(part) }).await.unwrap();
    }

    async fn ask(&mut self, part: Part) -> Reply {
        self.send(part).await;
        self.reply().await
    }

    /// The next reply. A slow machine may make the picker ask for more time before it.
    async fn reply(&mut self) -> Reply {
        loop {
            let reply = in_time(self.replies.message()).await.unwrap().unwrap();
            if let Some(response) = reply.response {
                return response;
            }
        }
    }
}

fn headers(headers: &[(&str, &str)]) -> HttpHeaders {
    HttpHeaders { headers: Some(map(headers)), end_of_stream: false }
}

fn infer() -> Part {
    Part::RequestHeaders(headers(&[(":path", "/v2/models/m/infer"), ("x-tessera-batch", "9/9")]))
}

/// Headers that a reply sets, and those that it removes.
fn changes(reply: Reply) -> (Vec<(String, String)>, Vec<String>) {
    let Reply::RequestHeaders(headers) = reply else { panic!("expected changes of headers, got {reply:?}") };
    let mutation = headers.response.unwrap().header_mutation.unwrap();
    let set = mutation.set_headers.into_iter().map(|option| {
        assert_eq!(option.append_action, 2, "it overwrites the client's");
        let header = option.header.unwrap();
        (header.key, String::from_utf8(header.raw_value.to_vec()).unwrap())
    });
    (set.collect(), mutation.remove_headers)
}

#[tokio::test]
async fn a_stream_of_envoy_is_a_request_until_its_response_or_its_end() {
    let world = World::start().await;
    let _client = in_time(world.client()).await;
    let channel = world.channel().await;

    let mut first = Exchange::open(channel.clone()).await;
    let (set, removed) = changes(first.ask(infer()).await);
    assert_eq!(set[0], ("x-gateway-destination-endpoint".to_owned(), "127.0.0.1:8000".to_owned()));
    assert!(set[1].0 == "x-tessera-batch" && set[1].1.ends_with("/1") && set[1].1 != "9/9", "{set:?}");
    assert!(removed.is_empty(), "{removed:?}");
    // Gateways that stream bodies through the picker get them back.
    let body = HttpBody { body: "bytes".into(), end_of_stream: true };
    let Reply::RequestBody(same) = first.ask(Part::RequestBody(body.clone())).await else { panic!("a body") };
    assert_eq!(same, crate::answers::same_body(body));

    let mut second = Exchange::open(channel.clone()).await;
    second.send(infer()).await;
    let waiting = in_time(second.replies.message()).await.unwrap().unwrap();
    assert_eq!((waiting.response, waiting.override_message_timeout.unwrap().seconds), (None, 60));
    let response = Part::ResponseHeaders(headers(&[(":status", "200")]));
    assert!(matches!(first.ask(response).await, Reply::ResponseHeaders(_)));
    assert_eq!(changes(second.reply().await).0.len(), 2);

    let mut third = Exchange::open(channel.clone()).await;
    third.send(infer()).await;
    drop(second);
    assert_eq!(changes(third.reply().await).0.len(), 2);

    let mut other = Exchange::open(channel.clone()).await;
    let (set, removed) = changes(other.ask(Part::RequestHeaders(headers(&[(":path", "/v2")]))).await);
    assert_eq!((set.len(), removed), (1, vec!["x-tessera-batch".to_owned()]));
    let mut refused = Exchange::open(channel).await;
    let unknown = Part::RequestHeaders(headers(&[(":path", "/v2/models/nowhere/infer")]));
    let Reply::ImmediateResponse(refusal) = refused.ask(unknown).await else { panic!("expected a refusal") };
    assert_eq!(refusal.status.unwrap().code, 404);
    assert_eq!(refusal.body, "{\"error\":\"model 'nowhere' is not on any node of the fleet\"}");

    // Streams that are answered end with the picker.
    world.stop.cancel();
    assert!(in_time(other.replies.message()).await.unwrap().is_none());
    in_time(world.serving).await.unwrap().unwrap();
}
