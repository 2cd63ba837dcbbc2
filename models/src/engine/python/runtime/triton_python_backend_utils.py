"""The module that `model.py` files import as `triton_python_backend_utils`, with the interface of Triton's.

Tensors are views of what the server sent where that is safe: an array may be kept and written to.
"""

import json
import struct

import numpy as np

# numpy does not have bfloat16; such tensors are exchanged as raw 16-bit numbers through DLPack only.
TRITON_STRING_TO_NUMPY = {
    "TYPE_BOOL": bool,
    "TYPE_UINT8": np.uint8,
    "TYPE_UINT16": np.uint16,
    "TYPE_UINT32": np.uint32,
    "TYPE_UINT64": np.uint64,
    "TYPE_INT8": np.int8,
    "TYPE_INT16": np.int16,
    "TYPE_INT32": np.int32,
    "TYPE_INT64": np.int64,
    "TYPE_FP16": np.float16,
    "TYPE_FP32": np.float32,
    "TYPE_FP64": np.float64,
    "TYPE_STRING": np.object_,
}

TRITONSERVER_RESPONSE_COMPLETE_FINAL = 1
TRITONSERVER_REQUEST_FLAG_SEQUENCE_START = 1
TRITONSERVER_REQUEST_FLAG_SEQUENCE_END = 2
TRITONSERVER_REQUEST_RELEASE_ALL = 1
TRITONSERVER_REQUEST_RELEASE_RESCHEDULE = 2
TRITONSERVER_MEMORY_CPU = 0
TRITONSERVER_MEMORY_GPU = 1

# Numbers and strings, as the protocol names them, in the order of their codes in messages.
_DATATYPES = (
    ("BOOL", np.dtype(np.bool_)),
    ("UINT8", np.dtype(np.uint8)),
    ("UINT16", np.dtype(np.uint16)),
    ("UINT32", np.dtype(np.uint32)),
    ("UINT64", np.dtype(np.uint64)),
    ("INT8", np.dtype(np.int8)),
    ("INT16", np.dtype(np.int16)),
    ("INT32", np.dtype(np.int32)),
    ("INT64", np.dtype(np.int64)),
    ("FP16", np.dtype(np.float16)),
    ("FP32", np.dtype(np.float32)),
    ("FP64", np.dtype(np.float64)),
)
_NUMPY_OF = dict(_DATATYPES)
_NAME_OF = {dtype: name for name, dtype in _DATATYPES}
# Set by the runner.
_host = None


class TritonModelException(Exception):
    """An error of the interface, as Triton's Python backend raises it."""


class TritonError:
    """The error of one request."""

    UNKNOWN = 0
    INTERNAL = 1
    NOT_FOUND = 2
    INVALID_ARG = 3
    UNAVAILABLE = 4
    UNSUPPORTED = 5
    ALREADY_EXISTS = 6
    CANCELLED = 7

    __slots__ = ("_message", "_code")

    def __init__(self, message, code=INTERNAL):
        self._message = str(message)
        self._code = int(code)

    def message(self):
        return self._message

    def code(self):
        return self._code


class Tensor:
    """A named tensor."""

    __slots__ = ("_name", "_array", "_datatype", "_shape", "_raw", "_foreign")

    def __init__(self, name, array):
        if not isinstance(array, np.ndarray):
            raise TypeError(f"tensor `{name}`: expected a numpy array, got {type(array).__name__}")
        self._name = name
        self._array = array
        self._raw = None
        self._foreign = None
        self._shape = None
        datatype = _NAME_OF.get(array.dtype)
        if datatype is None:
            if array.dtype.kind in "OSU":
                datatype = "BYTES"
            elif array.dtype.newbyteorder("=") in _NAME_OF:
                self._array = array.astype(array.dtype.newbyteorder("="))
                datatype = _NAME_OF[self._array.dtype]
            else:
                raise TritonModelException(f"tensor `{name}`: numpy type {array.dtype} is not supported")
        self._datatype = datatype

    @classmethod
    def _received(cls, name, datatype, shape, buffer, offset, size):
        tensor = cls.__new__(cls)
        tensor._name = name
        tensor._datatype = datatype
        tensor._shape = shape
        tensor._raw = (buffer, offset, size)
        tensor._array = None
        tensor._foreign = None
        return tensor

    def name(self):
        return self._name

    def as_numpy(self):
        array = self._array
        if array is None:
            if self._raw is None:
                raise TritonModelException("Tensor is stored in GPU and cannot be converted to NumPy.")
            buffer, offset, size = self._raw
            dtype = _NUMPY_OF.get(self._datatype)
            if dtype is not None:
                array = np.ndarray(self._shape, dtype, buffer, offset) if size else np.empty(self._shape, dtype)
            elif self._datatype == "BYTES":
                array = _strings(buffer, offset, size).reshape(self._shape)
            else:
                raise TritonModelException(f"tensor `{self._name}`: numpy has no type for {self._datatype}")
            self._array = array
        return array

    def shape(self):
        return list(self._shape if self._array is None else self._array.shape)

    def triton_dtype(self):
        return _TRITON_TYPE[self._datatype]

    def is_cpu(self):
        return True

    def __dlpack__(self, *, stream=None, **_):
        return self.to_dlpack()

    def __dlpack_device__(self):
        return (1, 0)

    def to_dlpack(self):
        if self._datatype == "BYTES":
            raise TritonModelException("DLPack does not have support for string tensors.")
        if self._datatype == "BF16":
            return _bfloat16_capsule(self)
        array = self.as_numpy()
        if self._datatype == "BOOL":
            array = array.view(np.uint8) if not _numpy_has_bool_dlpack() else array
        return array.__dlpack__()

    @staticmethod
    def from_dlpack(name, source):
        if not hasattr(source, "__dlpack__"):
            source = _Capsule(source)
        else:
            device = getattr(source, "__dlpack_device__", None)
            if device is not None and device()[0] not in (1, 3):
                # A tensor in the memory of a GPU is copied to the CPU.
                source = source.cpu()
        bfloat16 = _from_torch_bfloat16(name, source)
        if bfloat16 is not None:
            return bfloat16
        return Tensor(name, np.ascontiguousarray(np.from_dlpack(source)))

    def _encode(self):
        """Datatype, shape and a buffer of the elements."""
        array = self._array
        if array is None:
            buffer, offset, size = self._raw
            return self._datatype, list(self._shape), memoryview(buffer)[offset : offset + size]
        if self._datatype == "BYTES":
            return "BYTES", list(array.shape), _string_bytes(array)
        if not array.flags.c_contiguous:
            array = np.ascontiguousarray(array)
        if array.nbytes == 0:
            return self._datatype, list(array.shape), b""
        return self._datatype, list(array.shape), array.reshape(-1).view(np.uint8).data


class _Capsule:
    """A bare DLPack capsule, which can be consumed once."""

    def __init__(self, capsule):
        self._capsule = capsule

    def __dlpack__(self, **_):
        return self._capsule

    def __dlpack_device__(self):
        return (1, 0)


def _numpy_has_bool_dlpack():
    return tuple(int(part) for part in np.__version__.split(".")[:2]) >= (1, 25)


def _bfloat16_capsule(tensor):
    import torch

    buffer, offset, size = tensor._raw
    flat = torch.frombuffer(memoryview(buffer)[offset : offset + size], dtype=torch.bfloat16)
    return flat.reshape(tensor._shape).__dlpack__()


def _from_torch_bfloat16(name, source):
    if "bfloat16" not in str(getattr(source, "dtype", "")):
        return None
    import torch

    raw = source.detach().cpu().contiguous().view(torch.int16).numpy()
    return Tensor._received(name, "BF16", tuple(source.shape), raw.tobytes(), 0, raw.nbytes)


_TRITON_TYPE = {name: f"TYPE_{name}" for name, _ in _DATATYPES}
_TRITON_TYPE["BYTES"] = "TYPE_STRING"
_TRITON_TYPE["BF16"] = "TYPE_BF16"


def _strings(buffer, offset, size):
    elements = []
    end = offset + size
    view = memoryview(buffer)
    unpack = struct.Struct("<I").unpack_from
    while offset < end:
        (length,) = unpack(view, offset)
        offset += 4
        elements.append(bytes(view[offset : offset + length]))
        offset += length
    array = np.empty(len(elements), dtype=np.object_)
    array[:] = elements
    return array


def _string_bytes(array):
    parts = []
    pack = struct.Struct("<I").pack
    kind = array.dtype.kind
    for element in array.reshape(-1).tolist() if kind != "O" else array.reshape(-1):
        if isinstance(element, bytes):
            data = element
        elif isinstance(element, str):
            data = element.encode("utf-8")
        else:
            data = str(element).encode("utf-8")
        parts.append(pack(len(data)))
        parts.append(data)
    return b"".join(parts)


class InferenceResponse:
    """The response to one request: tensors, or an error."""

    __slots__ = ("_tensors", "_error", "_parameters")

    def __init__(self, output_tensors=(), error=None, parameters=None):
        for tensor in output_tensors:
            if not isinstance(tensor, Tensor):
                raise TypeError(f"output_tensors: expected pb_utils.Tensor, got {type(tensor).__name__}")
        if error is not None and not isinstance(error, TritonError):
            raise TypeError(f"error: expected pb_utils.TritonError, got {type(error).__name__}")
        self._tensors = list(output_tensors)
        self._error = error
        self._parameters = _checked_parameters(parameters) if parameters else None

    def output_tensors(self):
        return self._tensors

    def has_error(self):
        return self._error is not None

    def error(self):
        return self._error

    def parameters(self):
        return json.dumps(self._parameters or {})


def _checked_parameters(parameters):
    if isinstance(parameters, str):
        parameters = json.loads(parameters)
    for name, value in parameters.items():
        if not isinstance(name, str):
            raise TritonModelException(f"Expect parameters keys to have type str, found type {type(name)}")
        if not isinstance(value, (bool, int, float, str)):
            raise TritonModelException(
                f"Expect parameters values to have type bool/int/float/str, found type {type(value)}"
            )
    return dict(parameters)


class PreferredMemory:
    """Where a caller wants its outputs. All tensors are in the memory of the CPU, so it changes nothing."""

    def __init__(self, preferred_memory_type=TRITONSERVER_MEMORY_CPU, preferred_device_id=0):
        self.preferred_memory_type = preferred_memory_type
        self.preferred_device_id = preferred_device_id


class InferenceRequest:
    """A request: one of those that `execute` gets, or one for another model of the server."""

    __slots__ = (
        "_inputs",
        "_id",
        "_correlation",
        "_outputs",
        "_model",
        "_version",
        "_flags",
        "_timeout",
        "_parameters",
        "_number",
        "_sender",
        "_one_response",
    )

    def __init__(
        self,
        request_id="",
        correlation_id=0,
        requested_output_names=(),
        model_name="",
        inputs=(),
        model_version=-1,
        flags=0,
        timeout=0,
        preferred_memory=None,
        trace=None,
        parameters=None,
    ):
        for tensor in inputs:
            if not isinstance(tensor, Tensor):
                raise TypeError(f"inputs: expected pb_utils.Tensor, got {type(tensor).__name__}")
        self._inputs = list(inputs)
        self._id = request_id
        self._correlation = correlation_id
        self._outputs = list(requested_output_names)
        self._model = model_name
        self._version = model_version
        self._flags = flags
        self._timeout = timeout
        self._parameters = _checked_parameters(parameters) if parameters else {}
        self._number = None
        self._sender = None
        self._one_response = None

    def inputs(self):
        return self._inputs

    def request_id(self):
        return self._id

    def correlation_id(self):
        return self._correlation

    def requested_output_names(self):
        return self._outputs

    def model_name(self):
        return self._model

    def model_version(self):
        return self._version

    def flags(self):
        return self._flags

    def set_flags(self, flags):
        self._flags = flags

    def set_release_flags(self, flags):
        if flags != TRITONSERVER_REQUEST_RELEASE_ALL:
            raise TritonModelException(
                "set_release_flags: rescheduling of requests is not supported, expected TRITONSERVER_REQUEST_RELEASE_ALL"
            )

    def timeout(self):
        return self._timeout

    def parameters(self):
        return json.dumps(self._parameters)

    def preferred_memory(self):
        return PreferredMemory()

    def trace(self):
        return None

    def is_cancelled(self):
        return self._number is not None and _host.is_cancelled(self._number)

    def get_response_sender(self):
        if self._number is None:
            raise TritonModelException("get_response_sender: expected a request that `execute` received")
        if self._sender is None:
            self._sender = _host.response_sender(self)
        return self._sender

    def exec(self, decoupled=False):
        return _host.call(self, decoupled)

    async def async_exec(self, decoupled=False):
        return await _host.call_async(self, decoupled)


def get_input_tensor_by_name(inference_request, name):
    for tensor in inference_request._inputs:
        if tensor._name == name:
            return tensor
    return None


def get_output_tensor_by_name(inference_response, name):
    if inference_response._error is not None:
        raise TritonModelException("This function is not supported for responses with errors.")
    for tensor in inference_response._tensors:
        if tensor._name == name:
            return tensor
    return None


def get_input_config_by_name(model_config, name):
    for properties in model_config.get("input", ()):
        if properties["name"] == name:
            return properties
    return None


def get_output_config_by_name(model_config, name):
    for properties in model_config.get("output", ()):
        if properties["name"] == name:
            return properties
    return None


def using_decoupled_model_transaction_policy(model_config):
    return bool(model_config.get("model_transaction_policy", {}).get("decoupled", False))


def triton_to_numpy_type(data_type):
    """The numpy type of one of Triton's numbers for datatypes."""
    return (
        None,
        np.bool_,
        np.uint8,
        np.uint16,
        np.uint32,
        np.uint64,
        np.int8,
        np.int16,
        np.int32,
        np.int64,
        np.float16,
        np.float32,
        np.float64,
        np.object_,
    )[data_type]


def numpy_to_triton_type(data_type):
    """Triton's number of a numpy type."""
    dtype = np.dtype(data_type)
    if dtype.kind in "OSU":
        return 13
    names = [name for name, known in _DATATYPES if known == dtype]
    if not names:
        raise TritonModelException(f"numpy type {dtype} is not supported")
    return 1 + [name for name, _ in _DATATYPES].index(names[0])


def triton_string_to_numpy(triton_type_string):
    return TRITON_STRING_TO_NUMPY[triton_type_string]


def serialize_byte_tensor(input_tensor):
    """An array of strings as bytes: each element is preceded by its length."""
    if input_tensor.size == 0:
        return None
    if input_tensor.dtype.kind not in "OSU":
        raise TritonModelException("cannot serialize bytes tensor: invalid datatype")
    return _string_bytes(input_tensor)


def deserialize_bytes_tensor(encoded_tensor):
    """The elements of bytes that `serialize_byte_tensor` made, as a flat array."""
    return _strings(encoded_tensor, 0, len(encoded_tensor))


def get_model_dir():
    """The folder of the version that runs."""
    return _host.model_dir


def is_model_ready(model_name, model_version=""):
    return _host.is_model_ready(model_name, str(model_version))


def load_model(model_name, config="", files=None):
    raise TritonModelException("load_model: a model cannot load models, expected a call of the repository API")


def unload_model(model_name, unload_dependents=False):
    raise TritonModelException("unload_model: a model cannot unload models, expected a call of the repository API")


class _LogLevel:
    INFO = 0
    WARNING = 1
    ERROR = 2
    VERBOSE = 3


class Logger:
    """Writes to the server's log."""

    LogLevel = _LogLevel
    INFO = _LogLevel.INFO
    WARNING = _LogLevel.WARNING
    ERROR = _LogLevel.ERROR
    VERBOSE = _LogLevel.VERBOSE

    @staticmethod
    def log(message, level=_LogLevel.INFO):
        _host.log(level, message)

    @staticmethod
    def log_info(message):
        _host.log(_LogLevel.INFO, message)

    @staticmethod
    def log_warn(message):
        _host.log(_LogLevel.WARNING, message)

    @staticmethod
    def log_error(message):
        _host.log(_LogLevel.ERROR, message)

    @staticmethod
    def log_verbose(message):
        _host.log(_LogLevel.VERBOSE, message)


class MetricFamily:
    """A metric with one value for each set of labels."""

    COUNTER = 0
    GAUGE = 1
    HISTOGRAM = 2

    def __init__(self, name, description, kind):
        if kind not in (self.COUNTER, self.GAUGE):
            raise TritonModelException("MetricFamily: only COUNTER and GAUGE are supported")
        self._name = name
        self._kind = kind
        _host.describe_metric(name, description, kind)

    def Metric(self, labels=None, buckets=None):
        if buckets:
            raise TritonModelException("Metric: expected no buckets, only histograms have them")
        return Metric(self._name, self._kind, labels or {})


class Metric:
    """One value."""

    def __init__(self, family, kind, labels):
        self._family = family
        self._kind = kind
        self._labels = {str(name): str(value) for name, value in labels.items()}
        self._value = 0.0
        _host.set_metric(self._family, self._labels, self._kind, 0.0)

    def increment(self, value):
        if self._kind == MetricFamily.COUNTER and value < 0:
            raise TritonModelException(f"metric `{self._family}`: expected an increment of 0 or more, got {value}")
        self._set(self._value + value)

    def set(self, value):
        if self._kind == MetricFamily.COUNTER:
            raise TritonModelException(f"metric `{self._family}`: a counter cannot be set, expected a gauge")
        self._set(value)

    def observe(self, value):
        raise TritonModelException(f"metric `{self._family}`: only histograms observe, expected a counter or gauge")

    def value(self):
        return self._value

    def _set(self, value):
        self._value = float(value)
        _host.set_metric(self._family, self._labels, self._kind, self._value)


class ModelConfig:
    """What `auto_complete_config` changes."""

    _DEFAULTS = {
        "data_type": "TYPE_INVALID",
        "format": "FORMAT_NONE",
        "is_shape_tensor": False,
        "allow_ragged_batch": False,
        "optional": False,
        "label_filename": "",
    }

    def __init__(self, model_config):
        self._model_config = json.loads(model_config) if isinstance(model_config, str) else model_config

    def as_dict(self):
        return self._model_config

    def set_max_batch_size(self, max_batch_size):
        if self._model_config["max_batch_size"] > max_batch_size:
            raise ValueError(
                f"configuration specified max_batch_size {self._model_config['max_batch_size']}, "
                f"but in auto-complete-config function for model '{self._model_config['name']}' specified max_batch_size {max_batch_size}"
            )
        self._model_config["max_batch_size"] = max_batch_size

    def set_dynamic_batching(self):
        for other in ("sequence_batching", "ensemble_scheduling"):
            if other in self._model_config:
                raise ValueError(
                    f"Configuration specified {other}, but in auto-complete-config function for model "
                    f"'{self._model_config['name']}' specified dynamic_batching"
                )
        self._model_config.setdefault("dynamic_batching", {})

    def set_model_transaction_policy(self, transaction_policy_dict):
        unknown = [name for name in transaction_policy_dict if name != "decoupled"]
        if unknown:
            raise ValueError(f"model transaction property in auto-complete-config function for model "
                             f"'{self._model_config['name']}' contains property other than 'decoupled'.")
        if "decoupled" not in transaction_policy_dict:
            raise ValueError(f"model transaction property in auto-complete-config function for model "
                             f"'{self._model_config['name']}' is missing 'decoupled' property")
        own = self._model_config.setdefault("model_transaction_policy", {"decoupled": False})
        own["decoupled"] = bool(transaction_policy_dict["decoupled"])

    def add_input(self, input):
        self._add("input", input, ("name", "data_type", "dims", "optional"))

    def add_output(self, output):
        self._add("output", output, ("name", "data_type", "dims"))

    def _add(self, what, properties, allowed):
        model = self._model_config["name"]
        for name in properties:
            if name not in allowed:
                raise ValueError(
                    f"{what} in auto-complete-config function for model '{model}' contains property other than "
                    + ", ".join(f"'{one}'" for one in allowed)
                )
        for name in ("name", "data_type", "dims"):
            if name not in properties:
                raise ValueError(f"{what} in auto-complete-config function for model '{model}' is missing '{name}' property.")
        tensors = self._model_config.setdefault(what, [])
        for known in tensors:
            if known["name"] != properties["name"]:
                continue
            for name in ("data_type", "dims"):
                if known.get(name) and known[name] != "TYPE_INVALID" and known[name] != properties[name]:
                    raise ValueError(
                        f"unable to load model '{model}', configuration expects {what} '{known['name']}' {name} to be "
                        f"{known[name]} but the auto-complete-config function specifies {properties[name]}"
                    )
                known[name] = properties[name]
            if "optional" in properties:
                known["optional"] = properties["optional"]
            return
        tensors.append({**self._DEFAULTS, **properties} if what == "input" else dict(properties))
