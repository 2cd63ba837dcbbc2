"""Mistakes that people make in settings, and the words that the message must hold.

`{}` in a text stands for the folder of the test. The repository has the ONNX model `digits` and the synthetic model `calc`.
"""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Mistake:
    """One mistake."""

    says: tuple[str, ...]
    toml: str = ""
    # Text of digits/config.pbtxt.
    pbtxt: str = ""
    # Other files by name.
    files: dict[str, str] = field(default_factory=dict)
    arguments: tuple[str, ...] = ()
    environment: dict[str, str] = field(default_factory=dict)
    # The command instead of `check`.
    command: tuple[str, ...] = ()
    code: int = 1
    # Whether it is a mistake of the whole configuration, which keeps the server from starting.
    whole: bool = False


def toml(text: str, *says: str, **more: object) -> Mistake:
    """A mistake in tessera.toml that keeps the server from starting."""
    return Mistake(says, toml=text, whole=True, **more)


def model(text: str, *says: str, **more: object) -> Mistake:
    """A mistake in the settings of the model `digits` that needs the model to be seen."""
    return Mistake(says, toml=f"[models.digits]\n{text}\n", **more)


def pbtxt(text: str, *says: str, **more: object) -> Mistake:
    return Mistake(says, pbtxt=text, **more)


def flag(*arguments: str, says: tuple[str, ...], code: int = 1) -> Mistake:
    return Mistake(says, arguments=arguments, code=code, whole=True)


def variable(name: str, value: str, *says: str) -> Mistake:
    return Mistake(says, environment={name: value}, whole=True)


def plan(text: str, *says: str) -> Mistake:
    return Mistake(says, files={"plan.toml": text}, command=("plan", "{}/plan.toml"), code=2)


def simulate(text: str, *says: str) -> Mistake:
    return Mistake(says, files={"work.toml": text}, command=("simulate", "{}/work.toml"))


WORKLOAD = """name = "x"
duration = "1s"
[lanes]
count = 1
[models.m]
slo = "50ms"
profile = { alpha = "1ms", beta = "1ms", max_batch = 8 }
rate = 10.0
arrivals = { process = "poisson" }
"""


def workload(old: str, new: str, *says: str) -> Mistake:
    assert old in WORKLOAD, old
    return simulate(WORKLOAD.replace(old, new), *says)


PLAN = """profiles = "p.jsonl"
[devices.v100]
count = 1
memory = "16GiB"
[workloads.alexnet]
slo = "50ms"
rate = 100
"""


def problem(old: str, new: str, *says: str) -> Mistake:
    assert old in PLAN, old
    return plan(PLAN.replace(old, new), *says)


ADDRESS = "expected an address such as `127.0.0.1:8000`"
DURATION = "expected a duration such as `50ms`"
SIZE = "expected a size such as `16MiB`"
POSITIVE = "expected a whole number of at least 1"

MISTAKES: dict[str, Mistake] = {
    # Text that is not TOML.
    "toml: no value": toml("[server]\nhttp =\n", "tessera.toml:2"),
    "toml: unclosed string": toml('[server]\nhttp = "127.0.0.1:1\n', "tessera.toml:2"),
    "toml: key twice": toml("[limits]\ntensors = 1\ntensors = 2\n", "tessera.toml:3", "duplicate"),
    "toml: section twice": toml("[limits]\n[limits]\n", "tessera.toml:2", "duplicate"),
    "toml: yaml": toml("server:\n  http: 1\n", "tessera.toml:1"),
    "toml: section as value": toml("server = 3\n", "server: expected a section [server]", "tessera.toml:1"),
    # Unknown names.
    "section: typo": toml("[sever]\n", "sever: unknown section, did you mean `server`?", "tessera.toml:1"),
    "section: model for models": toml("[model.digits]\n", "model: unknown section, did you mean `models`?"),
    "section: far": toml("[colour]\n", "colour: unknown section: expected one of server, identity"),
    "key: typo": toml("[limits]\nbodi = '1MiB'\n", "limits.bodi: unknown key, did you mean `body`?", "tessera.toml:2"),
    "key: dash": toml("[server]\nlog-level = 'info'\n", "server.log-level", "did you mean `log_level`?"),
    "key: far": toml("[lanes]\ncolour = 1\n", "lanes.colour: unknown key: expected one of count, cores, shared"),
    "key: triton's": toml("[server]\nhttp_port = 1\n", "server.http_port: unknown key", "http"),
    "key: of another section": toml("[server]\nbody = '1MiB'\n", "server.body: unknown key"),
    "key: outside a section": toml("http = '127.0.0.1:1'\n", "http: unknown section"),
    "model: unknown": toml("[models.digit]\nslo = '9s'\n", "models.digit", "did you mean `digits`?", "tessera.toml:2"),
    "model: far": toml("[models.bert]\nslo = '9s'\n", "models.bert", "repository.allow_unknown_models"),
    "model: key typo": toml("[models.digits]\nsl0 = '9s'\n", "models.digits.sl0", "did you mean `slo`?", "tessera.toml:2"),
    "model: key of batching": toml("[models.digits]\nmax_delay = '1ms'\n", "models.digits.max_delay: unknown key"),
    "model: bad name": toml("[models.'../x']\nslo = '9s'\n", "models.../x"),
    "model: as value": toml("[models]\ndigits = 3\n", "models.digits: expected a table like [models.resnet50]"),
    "models: as value": toml("models = 3\n", "models: expected tables like [models.resnet50]"),
    "batching: key typo": toml(
        "[models.digits]\nbatching = { maxdelay = '1ms' }\n", "models.digits.batching.maxdelay", "did you mean `max_delay`?", "tessera.toml:2"
    ),
    "batching: own table, typo": toml(
        "[models.digits.batching]\npolcy = 'triton'\n", "models.digits.batching.polcy", "did you mean `policy`?", "tessera.toml:2"
    ),
    "emulated: key typo": toml("[devices]\nemulated = [{ knd = 'v100', memory = '1GiB' }]\n", "devices.emulated", "knd", "kind"),
    "tenant: key typo": toml("[tenants.a]\nweigth = 2\n", "tenants.a.weigth", "did you mean `weight`?", "tessera.toml:2"),
    "tenant: as value": toml("[tenants]\na = 3\n", "tenants.a: expected a table like [tenants.search]", "tessera.toml:2"),
    "tenant: weight of zero": toml("[tenants.a]\nweight = 0\n", "tenants.a.weight", POSITIVE, "tessera.toml:2"),
    "tenant: quota of zero": toml(
        "[tenants.a]\nrequests_per_second = 0.0\n", "tenants.a.requests_per_second: 0: expected more than 0", "tessera.toml:2"
    ),
    "tenant: burst alone": toml("[tenants.a]\ndevice_seconds_burst = 1.0\n", "tenants.a.device_seconds_burst: has no effect"),
    "tenant: borrows without a quota": toml("[tenants.a]\nborrow = true\n", "tenants.a.borrow: has no effect"),
    "tenant: name of metrics": toml("[tenants.other]\nweight = 2\n", "tenants.other", "expected another one"),
    "tenant: bad name": toml("[tenants.'a b']\nweight = 2\n", "tenants.a b: expected a name"),
    "tenant: header": toml("[server]\ntenant_header = 'X Tenant'\n", "server.tenant_header", "such as `x-tenant`", "tessera.toml:2"),
    "tenant: peers": toml("[server]\ntrusted_peers = ['gateway']\n", "server.trusted_peers", "expected an IP address or network"),
    # Wrong types and values.
    "address: host name": toml("[server]\nhttp = 'localhost:8000'\n", "server.http", ADDRESS, "tessera.toml:2"),
    "address: no port": toml("[server]\nhttp = '127.0.0.1'\n", "server.http", ADDRESS),
    "address: number": toml("[server]\ngrpc = 8001\n", "server.grpc", "`8001`", ADDRESS),
    "address: port too large": toml("[server]\nhttp = '127.0.0.1:80000'\n", "server.http", ADDRESS),
    "address: url": toml("[server]\nmetrics = 'http://127.0.0.1:1'\n", "server.metrics", ADDRESS),
    "port: twice": toml("[server]\nhttp = '127.0.0.1:9000'\ngrpc = '127.0.0.1:9000'\n", "server.grpc", "server.http", "another port"),
    "port: twice, one on all": toml("[server]\nhttp = '0.0.0.0:9000'\nmetrics = '127.0.0.1:9000'\n", "server.metrics", "another port"),
    "port: of a default": toml("[server]\nhttp = '127.0.0.1:8001'\n", "server.grpc", "127.0.0.1:8001", "another port"),
    "duration: number": toml("[server]\ngrace = 30\n", "server.grace", DURATION, "`30`", "tessera.toml:2"),
    "duration: no unit": toml("[server]\ngrace = '30'\n", "server.grace", DURATION, "`30`"),
    "duration: negative": toml("[server]\ngrace = '-1s'\n", "server.grace", DURATION, "`-1s`"),
    "duration: words": toml("[limits]\nbody_timeout = 'soon'\n", "limits.body_timeout", DURATION, "`soon`"),
    "duration: seconds": toml("[server]\nlame_duck = '5 seconds'\n", "server.lame_duck", DURATION),
    "size: number": toml("[limits]\nbody = 64\n", "limits.body", SIZE, "`64`"),
    "size: MB": toml("[limits]\nbody = '64MB'\n", "limits.body", SIZE, "`64MB`"),
    "size: fraction": toml("[limits]\nbodies = '1.5GiB'\n", "limits.bodies", SIZE),
    "size: negative": toml("[limits]\nname = '-1B'\n", "limits.name", SIZE),
    "size: too large": toml("[limits]\nbody = '8GiB'\n", "limits.body", "expected 1B to"),
    "size: header too small": toml("[limits]\nheader = '1B'\n", "limits.header", "expected 1KiB to 64KiB"),
    "size: bodies below body": toml("[limits]\nbodies = '1MiB'\n", "limits.bodies", "expected at least limits.body"),
    "count: zero": toml("[limits]\nconnections = 0\n", "limits.connections", POSITIVE, "`0`"),
    "count: negative": toml("[limits]\nqueue = -5\n", "limits.queue", POSITIVE, "`-5`"),
    "count: fraction": toml("[limits]\nmailbox = 1.5\n", "limits.mailbox", POSITIVE, "`1.5`"),
    "count: text": toml("[limits]\nstreams = 'many'\n", "limits.streams", "expected a whole number of at least 0", "many"),
    "count: streams zero": toml("[limits]\nstreams = 0\n", "limits.streams", "expected at least 1"),
    "count: tensors too many": toml("[limits]\ntensors = 99999\n", "limits.tensors", "expected at most"),
    "count: depth too deep": toml("[limits]\njson_depth = 999\n", "limits.json_depth", "expected at most 128"),
    "count: threads zero": toml("[server]\nthreads = 0\n", "server.threads", POSITIVE),
    "count: list": toml("[limits]\nqueue = [1]\n", "limits.queue", POSITIVE, "a list"),
    "switch: text": toml("[repository]\nstrict = 'no'\n", "repository.strict", "expected true or false"),
    "switch: number": toml("[lanes]\nshared = 1\n", "lanes.shared", "expected true or false", "`1`"),
    "switch: metrics": toml("[metrics]\ntriton_names = 'yes'\n", "metrics.triton_names", "expected true or false"),
    "word: log level": toml("[server]\nlog_level = 'loud'\n", "server.log_level", "`loud`", "expected error, warn, info"),
    "word: log format": toml("[server]\nlog_format = 'xml'\n", "server.log_format", "`auto`, `human`", "xml"),
    "word: load": toml("[repository]\nload = 'some'\n", "repository.load", "expected `all` or `explicit`", "`some`"),
    "word: engine": toml("[repository]\nengine = 'tract2'\n", "repository.engine", "did you mean `tract`?"),
    "word: engine of onnx": toml("[repository]\nengine = 'pytorch'\n", "repository.engine", "pytorch", "`ort`"),
    "word: gpus": toml("[devices]\ngpus = 'on'\n", "devices.gpus", "`off` or `auto`", "`on`"),
    "word: backend": toml("[devices]\ngpu_backend = 'mps'\n", "devices.gpu_backend", "mps", "cuda-mps"),
    "word: isolation": toml("[devices]\nisolation = 'container'\n", "devices.isolation", "`none` or `process`"),
    "word: policy": toml("[partition]\npolicy = 'best'\n", "partition.policy", "`best`", "expected one of"),
    "word: scaler": toml("[partition]\nscaling = 'fast'\n", "partition.scaling", "`fast`", "expected one of attainment"),
    "word: interference": toml("[partition]\ninterference = 'some'\n", "partition.interference", "`learned` or `none`"),
    "time: period too short": toml("[partition]\nperiod = '1ms'\n", "partition.period", "expected at least 100ms"),
    "time: idle too short": toml("[partition]\nidle = '1ms'\n", "partition.idle", "expected at least 100ms"),
    "history: zero": toml("[partition]\nhistory = 0\n", "partition.history", POSITIVE),
    # Who may call.
    "keys: no file": toml("[identity]\nkeys = '{}/none'\n", "identity.keys: no file `", "tessera.toml:2"),
    "keys: a key instead of its hash": toml(
        "[identity]\nkeys = '{}/keys'\n",
        "identity.keys: line 1: expected the SHA-256 of the key, got the key: `tessera key new` prints the line",
        files={"keys": "tsk_abc infer search\n"},
    ),
    "keys: role": toml(
        "[identity]\nkeys = '{}/keys'\n",
        "identity.keys: line 2: role: expected infer, read or operate, got `admin`",
        files={"keys": "# keys\n" + "0" * 64 + " admin search\n"},
    ),
    "jwks: url": toml("[identity]\njwks = 'https://a.example/keys'\n", "identity.jwks: `https://a.example/keys`: URLs are not supported"),
    "jwks: no issuer": toml("[identity]\njwks = '{}/jwks'\n", "identity.issuer: not set", files={"jwks": '{"keys": []}'}),
    "jwks: symmetric key": toml(
        "[identity]\njwks = '{}/jwks'\nissuer = 'i'\naudience = ['a']\n",
        "identity.jwks: keys[0]: a symmetric key (`oct`): expected a public key",
        files={"jwks": '{"keys": [{"kty": "oct", "k": "c2VjcmV0"}]}'},
    ),
    "jwks: text": toml(
        "[identity]\njwks = '{}/jwks'\nissuer = 'i'\naudience = ['a']\n",
        "identity.jwks: expected a JSON Web Key Set",
        files={"jwks": "no JSON"},
    ),
    "jwks: leeway": toml("[identity]\nleeway = '1h'\n", "identity.leeway: 1h: expected at most 10m"),
    "tls: no key": toml("[tls]\ncert = '{}/cert'\n", "tls.key: not set: expected the private key of `tls.cert`", files={"cert": "x"}),
    "tls: no certificate in the file": toml(
        "[tls]\ncert = '{}/cert'\nkey = '{}/cert'\n", "tls.cert: no certificate: expected PEM", files={"cert": "x"}
    ),
    "tls: authority without a certificate": toml("[tls]\nclient_ca = '{}/ca'\n", "tls.client_ca: has no effect without `tls.cert`", files={"ca": "x"}),
    "tls: role": toml("[tls]\nclient_role = 'admin'\n", "tls.client_role", "`infer`, `read`", "admin"),
    "tls: listener": toml("[tls]\nlisteners = ['https']\n", "tls.listeners", "`http`, `grpc`", "https"),
    "admin: other machines": toml(
        "[server]\nadmin = '0.0.0.0:8003'\n", "server.admin", "without authentication", "`identity.keys`", '`server.admin = "127.0.0.1:8003"`'
    ),
    "admin: name with port": toml("[server]\nadmin_names = ['a.example:8003']\n", "server.admin_names", "expected a host name without port"),
    "admin: model control": toml("[server]\nmodel_control = 'closed'\n", "server.model_control", "`operate` or `open`"),
    # Lanes and devices.
    "lanes: too many": toml("[lanes]\ncount = 4000\n", "lanes.count", "lanes.shared = true", "4000"),
    "lanes: count and cores": toml("[lanes]\ncount = 1\ncores = [[0]]\n", "lanes.count", "set together with lanes.cores"),
    "lanes: shared and cores": toml("[lanes]\nshared = true\ncores = [[0]]\n", "lanes.shared", "set together with lanes.cores"),
    "lanes: core twice": toml("[lanes]\ncores = [[0], [0]]\n", "lanes.cores", "core 0 is in two lanes"),
    "lanes: no cores": toml("[lanes]\ncores = []\n", "lanes.cores", "at least one lane"),
    "lanes: core that is not there": toml("[lanes]\ncores = [[4000]]\n", "lanes.cores", "core 4000 is not available"),
    "lanes: flat list": toml("[lanes]\ncores = [0, 1]\n", "lanes.cores", "expected a list", "`0`"),
    "lanes: shared and live": toml("[lanes]\nshared = true\n[partition]\nlive = true\n", "lanes.shared", "partition.live"),
    "emulated: no memory": toml("[devices]\nemulated = [{ kind = 'v100' }]\n", "devices.emulated", "memory"),
    "emulated: table": toml("[devices]\nemulated = { kind = 'v100' }\n", "devices.emulated", "expected a list"),
    "emulated: lists": toml("[devices]\nemulated = [['v100', '1GiB']]\n", "devices.emulated", "expected a list of tables"),
    "emulated: no profile": toml("[devices]\nemulated = [{ kind = 'v100', memory = '1GiB' }]\n", "devices.emulated", "v100", "profile"),
    "emulated: sizes": toml(
        "[devices]\nemulated = [{ kind = 'v100', memory = '1GiB', sizes = [2, 1] }]\n", "devices.emulated[0].sizes", "ascending"
    ),
    "emulated: and lanes": toml(
        "[lanes]\ncount = 1\n[devices]\nemulated = [{ kind = 'v100', memory = '1GiB' }]\n", "lanes.count", "devices.emulated"
    ),
    "emulated: and gpus": toml(
        "[devices]\ngpus = 'auto'\nemulated = [{ kind = 'v100', memory = '1GiB' }]\n", "devices.gpus", "devices.emulated"
    ),
    # Files that settings name.
    "profiles: missing": toml("[partition]\nprofiles = ['{}/none.jsonl']\n", "partition.profiles", "none.jsonl"),
    "profiles: no match": toml("[partition]\nprofiles = ['{}/*.jsonl']\n", "partition.profiles", "no file of that name"),
    "profiles: two stars": toml("[partition]\nprofiles = ['{}/*/*.jsonl']\n", "partition.profiles", "at most one `*`"),
    "profiles: garbage": toml("[partition]\nprofiles = ['{}/p.jsonl']\n", "p.jsonl:1", files={"p.jsonl": "garbage\n"}),
    "profiles: text": toml("[partition]\nprofiles = 'p.jsonl'\n", "partition.profiles", "expected a list", "p.jsonl"),
    "repository: missing": flag("--repository", "{}/none", says=("repository.path", "none", "is not a folder", "--repository")),
    "repository: file": flag("--repository", "{}/tessera.toml", says=("repository.path", "is not a folder")),
    "ort library: missing": toml("[repository]\nort_library = '{}/none.so'\n", "repository.ort_library", "none.so"),
    "ort library: garbage": toml("[repository]\nort_library = '{}/lib.so'\n", "repository.ort_library", "lib.so", files={"lib.so": "x"}),
    "config: missing": flag("--config", "{}/none.toml", says=("none.toml", "--config")),
    "config: folder": flag("--config", "{}", says=("cannot read", "--config")),
    # Settings of models.
    "slo: number": toml("[models.digits]\nslo = 50\n", "models.digits.slo", DURATION, "`50`", "tessera.toml:2"),
    "slo: no unit": toml("[models.digits]\nslo = '50'\n", "models.digits.slo", DURATION, "`50`"),
    "slo: zero": model("slo = '0ms'", "slo", "is 0"),
    "slo: longer than timeout_max": model("slo = '2s'\ntimeout_max = '1s'", "timeout_max", "shorter than the slo", "2s"),
    "timeout_max: zero": model("timeout_max = '0s'", "timeout_max", "is 0"),
    "model engine": toml("[models.digits]\nengine = 'orc'\n", "models.digits.engine", "did you mean `ort`"),
    "max_batch: negative": toml("[models.digits]\nmax_batch = -1\n", "models.digits.max_batch", "expected a whole number of at least 0"),
    "max_batch: text": toml("[models.digits]\nmax_batch = 'all'\n", "models.digits.max_batch", "expected a whole number of at least 0"),
    "max_batch: and free_batch": model("max_batch = 0\nfree_batch = true", "max_batch", "free_batch"),
    "queue_limit: zero": toml("[models.digits]\nqueue_limit = 0\n", "models.digits.queue_limit", POSITIVE),
    "default_class: zero": toml("[models.digits]\ndefault_class = 0\n", "models.digits.default_class", POSITIVE),
    "versions: word": toml("[models.digits]\nversions = 'newest'\n", "models.digits.versions", 'expected "latest", "all"', "newest"),
    "versions: zero": toml("[models.digits]\nversions = [0]\n", "models.digits.versions", "versions of 1 or more"),
    "versions: text in list": toml("[models.digits]\nversions = ['1']\n", "models.digits.versions", "whole number"),
    "versions: missing": model("versions = [7]", "models.digits.versions", "version 7 is not in the repository", "1"),
    "lanes of a model: empty": toml("[models.digits]\nlanes = []\n", "models.digits.lanes", "list of lane numbers"),
    "lanes of a model: beyond": model("lanes = [4000]", "models.digits.lanes", "no lane 4000", "tessera.toml:2"),
    "lanes of a model: and live": toml("[partition]\nlive = true\n[models.digits]\nlanes = [0]\n", "models.digits.lanes", "partition.live"),
    "batching: word": toml("[models.digits]\nbatching = 'triton'\n", "models.digits.batching", "expected a table", "triton"),
    "batching: list": toml("[models.digits]\nbatching = ['triton']\n", "models.digits.batching", "expected a table, got a list"),
    "batching: policy": model("batching = { policy = 'tritn' }", "models.digits.batching", "tritn", "triton"),
    "batching: delay": toml("[models.digits]\nbatching = { max_delay = 2 }\n", "models.digits.batching.max_delay", DURATION),
    "batching: preferred beyond": model("max_batch = 4\nbatching = { preferred = [8] }", "batching.preferred", "at most the largest batch, 4"),
    "batching: preferred zero": toml("[models.digits]\nbatching = { preferred = [0] }\n", "models.digits.batching.preferred", POSITIVE),
    "batching: delay without use": model("batching = { policy = 'clockwork', max_delay = '1ms' }", "batching", "max_delay"),
    # config.pbtxt.
    "pbtxt: garbage": pbtxt("max_batch_size = 8\n", "config.pbtxt", "1:"),
    "pbtxt: unknown field": pbtxt("max_batch: 8\n", "config.pbtxt", "max_batch", "max_batch_size"),
    "pbtxt: wrong type": pbtxt('max_batch_size: "8"\n', "config.pbtxt:1:17", "expected an integer"),
    "pbtxt: negative batch": pbtxt("max_batch_size: -1\n", "config.pbtxt", "max_batch_size"),
    "pbtxt: another name": pbtxt('name: "other"\n', "name", "other", "digits"),
    "pbtxt: another platform": pbtxt('platform: "tensorrt_plan"\n', "platform", "tensorrt_plan"),
    "pbtxt: another backend": pbtxt('backend: "vllm"\n', "backend", "vllm"),
    "pbtxt: input that is not there": pbtxt('input [ { name: "x" data_type: TYPE_FP32 dims: [ 64 ] } ]\n', "input `x`", "`image`"),
    "pbtxt: datatype": pbtxt('input [ { name: "image" data_type: TYPE_INT8 dims: [ 64 ] } ]\n', "image", "INT8", "FP32"),
    "pbtxt: dims": pbtxt('max_batch_size: 8\ninput [ { name: "image" data_type: TYPE_FP32 dims: [ 63 ] } ]\n', "image", "dims", "[64]"),
    "pbtxt: unknown datatype": pbtxt('input [ { name: "image" data_type: TYPE_FLOAT dims: [ 64 ] } ]\n', "TYPE_FLOAT"),
    "pbtxt: preferred beyond": pbtxt(
        "max_batch_size: 4\ndynamic_batching { preferred_batch_size: [ 8 ] }\n", "preferred_batch_size", "largest batch, 4"
    ),
    "pbtxt: labels missing": pbtxt(
        'output [ { name: "probabilities" data_type: TYPE_FP32 dims: [ -1, 10 ] label_filename: "none.txt" } ]\n', "none.txt"
    ),
    "pbtxt: version": pbtxt("version_policy { specific { versions: [ 9 ] } }\n", "9", "not in the repository"),
    "pbtxt: iterative sequences": pbtxt("sequence_batching { iterative_sequence: true }\n", "sequence_batching.iterative_sequence", "1:"),
    "pbtxt: ensemble": pbtxt("ensemble_scheduling { }\n", "ensemble_scheduling"),
    "pbtxt: file name": pbtxt('default_model_filename: "none.onnx"\n', "none.onnx"),
    # Other files of a repository.
    "model.toml: not toml": Mistake(("calc/1", "model.toml:1"), files={"models/calc/1/model.toml": "max_batch\n"}),
    "model.toml: typo": Mistake(("calc/1", "model.toml:2", "outputs", "did you mean"), files={"models/calc/1/model.toml": "inputs = []\noutput = []\n"}),
    "onnx: garbage": Mistake(("digits/1", "model.onnx"), files={"models/digits/1/model.onnx": "garbage"}),
    # Flags.
    "flag: unknown": flag("--htp", "127.0.0.1:1", says=("--htp", "--http"), code=2),
    "flag: no value": flag("--http", says=("--http", "ADDRESS"), code=2),
    "flag: address": flag("--http", "8000", says=("server.http", ADDRESS, "--http")),
    "flag: lanes": flag("--lanes", "0", says=("lanes.count", POSITIVE, "flag --lanes")),
    "flag: engine": flag("--engine", "orc", says=("repository.engine", "did you mean `ort`", "--engine")),
    "flag: load mode": flag("--load-mode", "none", says=("repository.load", "`all` or `explicit`", "--load-mode")),
    "flag: grace": flag("--grace", "30", says=("server.grace", DURATION, "--grace")),
    "flag: log level": flag("--log-level", "verbose", says=("server.log_level", "expected error, warn", "--log-level")),
    "set: no value": flag("--set", "limits.body", says=("OPTION=VALUE", "limits.body=16MiB"), code=2),
    "set: unknown key": flag("--set", "limits.bdy=1MiB", says=("limits.bdy", "did you mean `body`?", "--set")),
    "set: unknown section": flag("--set", "limit.body=1MiB", says=("limit.body", "did you mean `limits`?", "--set")),
    "set: value": flag("--set", "limits.body=big", says=("limits.body", SIZE, "`big`", "--set")),
    "set: model key": flag("--set", "models.digits.sl=5ms", says=("models.digits.sl", "did you mean `slo`?")),
    "set: model value": flag("--set", "models.digits.slo=5", says=("models.digits.slo", DURATION, "--set")),
    "set: batching": flag("--set", "models.digits.batching.max_delay=2", says=("models.digits.batching.max_delay", DURATION, "--set")),
    "set: unknown model": flag("--set", "models.digit.slo=5s", says=("models.digit", "did you mean `digits`?")),
    "set: model without key": flag("--set", "models.digits=5ms", says=("models.digits", "expected models.NAME.key=value")),
    # Environment.
    "environment: value": variable("TESSERA_LIMITS_BODY", "big", "limits.body", SIZE, "TESSERA_LIMITS_BODY"),
    "environment: address": variable("TESSERA_SERVER_HTTP", "8000", "server.http", ADDRESS, "TESSERA_SERVER_HTTP"),
    "environment: typo": variable("TESSERA_LIMITS_BODI", "1MiB", "TESSERA_LIMITS_BODI", "did you mean `TESSERA_LIMITS_BODY`?"),
    "environment: unknown key": variable("TESSERA_LIMITS_COLOUR", "1", "TESSERA_LIMITS_COLOUR", "unknown variable"),
    "environment: of a model": variable("TESSERA_MODELS_DIGITS_SLO", "5ms", "TESSERA_MODELS_DIGITS_SLO", "--set models.NAME"),
    # Workload files.
    "workload: typo": workload("duration", "duraton", "work.toml:2", "duraton", "did you mean `duration`?"),
    "workload: no duration": workload('duration = "1s"\n', "", "work.toml", "duration"),
    "workload: rate text": workload("rate = 10.0", "rate = 'fast'", "work.toml:8", "models.m.rate", "expected a number", "fast"),
    "workload: lanes text": workload("count = 1", "count = 'two'", "work.toml:4", "lanes.count", "whole number", "two"),
    "workload: lanes as list": workload("[lanes]\ncount = 1", "lanes = [1]", "work.toml:3", "lanes", "expected"),
    "workload: model as list": workload("rate = 10.0", "rate = [1]", "work.toml:8", "models.m.rate", "expected a number", "a list"),
    "workload: process": workload('"poisson"', '"poison"', "work.toml:9", "models.m.arrivals", "poisson"),
    "workload: slo": workload('"50ms"', "50", "work.toml:6", "models.m.slo", DURATION),
    "workload: negative batch": workload("max_batch = 8", "max_batch = -8", "work.toml:7", "models.m.profile", "whole number"),
    "workload: sequences": workload(
        "rate = 10.0", "rate = 10.0\nsequence_batching = {}", "work.toml:9", "models.m.sequence_batching", "no sequences", "remove the key"
    ),
    "workload: rate limiter": workload("[lanes]", "[rate_limit]\n[lanes]", "rate_limit", "no rate limiter", "tessera load"),
    "workload: delay": workload(
        "rate = 10.0", "rate = 10.0\ntimeout_action = 'DELAY'", "models.m.timeout_action", "no queue policies such as `DELAY`", "dropped"
    ),
    "workload: quota": workload(
        "[models.m]", "[tenants.a]\nrequests_per_second = -1\n[models.m]", "work.toml:6", "tenants.a.requests_per_second", "more than 0"
    ),
    "workload: not toml": simulate("name: x\n", "work.toml:1"),
    "workload: missing": Mistake(("none.toml",), command=("simulate", "{}/none.toml")),
    # Problem files of `tessera plan`.
    "plan: typo": problem("[workloads.alexnet]", "[workload.alexnet]", "plan.toml:5", "workload", "did you mean `workloads`?"),
    "plan: count text": problem("count = 1", "count = 'two'", "plan.toml:3", "devices.v100.count", "whole number", "two"),
    "plan: memory": problem('"16GiB"', '"16GB"', "plan.toml:4", "devices.v100.memory", SIZE),
    "plan: rate list": problem("rate = 100", "rate = [1]", "plan.toml:7", "workloads.alexnet.rate", "expected a number", "a list"),
    "plan: slo": problem('slo = "50ms"', "slo = 50", "plan.toml:6", "workloads.alexnet.slo", DURATION),
    "plan: devices as list": problem("[devices.v100]\n", "[[devices]]\n", "plan.toml:2", "devices", "expected a table"),
    "plan: no profiles": problem('"p.jsonl"', '"none.jsonl"', "plan.toml:1", "profiles", "none.jsonl"),
    "plan: no value": problem("rate = 100\n", "", "plan.toml:5", "workloads.alexnet.rate", "no default"),
    "plan: sequences": problem(
        "rate = 100", "rate = 100\nsequence_batching = {}", "plan.toml:8", "workloads.alexnet.sequence_batching", "no sequences"
    ),
    "plan: not toml": plan("profiles = \n", "plan.toml:1"),
}
