"""Makes a variant of an ONNX model: KIND INPUT OUTPUT."""

import sys


def main(kind, source, target):
    if kind == "int8":
        from onnxruntime.quantization import QuantType, quantize_dynamic

        quantize_dynamic(source, target, weight_type=QuantType.QInt8)
    else:
        import onnx
        from onnxconverter_common import float16

        model = float16.convert_float_to_float16(onnx.load(source), keep_io_types=True)
        onnx.save(model, target)


try:
    main(*sys.argv[1:])
except ImportError as error:
    sys.exit(f"{error}: expected --python with the packages onnx, onnxruntime and onnxconverter-common")
except Exception as error:  # The last line is what people see.
    sys.exit(f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}")
