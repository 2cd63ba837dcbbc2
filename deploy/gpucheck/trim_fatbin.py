"""Keeps a library's CUDA kernels for one architecture only.

A library with kernels has a section `.nv_fatbin` of regions, each with a header and parts. A part is the code of some kernels
for one architecture, as text for the driver's compiler or as machine code. Text is kept only if the region has no machine
code for the architecture. Parts are compressed with LZ4 (CUDA 12) or zstd (CUDA 13). Kept parts move to the front of their
region, the size in the region's header is reduced, and the rest becomes zeros, which compress well. No byte outside the section
moves, so nothing else changes."""

import dataclasses
import re
import struct
import sys

MAGIC = 0xBA55ED50
MACHINE_CODE = 2
ZSTD = b"\x28\xb5\x2f\xfd"
# Fused operators that only large language models use; no exported model has one.
LANGUAGE_MODELS = r"(?i)flash|paged|moe|fpA_intB|weight_only|GroupQuery|mamba|LinearAttention|rotary|matmul_?n_?bits|4bit|int4|fp4"


@dataclasses.dataclass
class Kept:
    """Number of parts, and of those that were kept."""

    entries: int = 0
    kept: int = 0


def section(library, name):
    """Offset and size of a section of a 64-bit little-endian ELF file."""
    if library[:6] != b"\x7fELF\x02\x01":
        raise ValueError("expected a 64-bit little-endian ELF file")
    (table,) = struct.unpack_from("<Q", library, 0x28)
    width, count, names_at = struct.unpack_from("<HHH", library, 0x3A)

    def header(index):
        start, _, _, _, offset, size = struct.unpack_from("<IIQQQQ", library, table + index * width)
        return start, offset, size

    _, names, _ = header(names_at)
    for index in range(count):
        start, offset, size = header(index)
        end = library.index(b"\0", names + start)
        if library[names + start : end] == name:
            return offset, size
    raise ValueError(f"expected a section `{name.decode()}`")


def needed(library):
    """Names of the libraries that this one is linked with."""
    at, size = section(library, b".dynamic")
    names, _ = section(library, b".dynstr")
    found = []
    for entry in range(at, at + size, 16):
        tag, value = struct.unpack_from("<QQ", library, entry)
        if tag == 1:
            found.append(library[names + value : library.index(b"\0", names + value)].decode())
    return found


def kernels(header, part):
    """Names of the kernels in a part of machine code; empty if it has none."""
    (packed,) = struct.unpack_from("<I", header, 16)
    if part[:4] == ZSTD:
        import zstandard  # like lz4 not in the standard library; `pack` installs missing ones

        part = zstandard.ZstdDecompressor().decompressobj().decompress(part)
    elif packed:
        import lz4.block

        (size,) = struct.unpack_from("<Q", header, 56)
        part = lz4.block.decompress(part[:packed], uncompressed_size=size)
    return set(re.findall(rb"\.text\.([A-Za-z0-9_]+)", part))


def parts(library, region, region_end):
    """Offset, length, header length, kind and architecture of the parts of a region."""
    part = region
    while part < region_end:
        kind, _, header, size = struct.unpack_from("<HHIQ", library, part)
        (made_for,) = struct.unpack_from("<I", library, part + 28)
        if header < 64 or part + header + size > region_end:
            raise ValueError(f"a part at {part} does not fit into its region")
        yield part, header + size, header, kind, made_for
        part += header + size


def trim(path, architecture, without):
    """Trims a library in place. Parts whose kernels all match `without` are dropped too; '' matches nothing."""
    library = bytearray(path.read_bytes())
    unwanted = re.compile(without.encode()) if without else None
    start, size = section(library, b".nv_fatbin")
    at, end, count = start, start + size, Kept()
    while at + 16 <= end:
        magic, _, header_size, region_size = struct.unpack_from("<IHHQ", library, at)
        if magic != MAGIC:
            at += 8
            continue
        region_end, keep = at + header_size + region_size, bytearray()
        if region_end > end:
            raise ValueError(f"a region at {at} ends beyond its section")
        found = list(parts(library, at + header_size, region_end))
        own = [part for part in found if part[4] == architecture]
        code = [part for part in own if part[3] == MACHINE_CODE]
        count.entries += len(found)
        for part, length, header, kind, _ in code or own:
            if unwanted and kind == MACHINE_CODE:
                names = kernels(library[part : part + header], bytes(library[part + header : part + length]))
                if names and all(unwanted.search(name) for name in names):
                    continue
            keep += library[part : part + length]
            count.kept += 1
        library[at + header_size : region_end] = keep + bytes(region_size - len(keep))
        struct.pack_into("<Q", library, at + 8, len(keep))
        at = region_end
    if count.kept == 0:
        raise ValueError(f"no part for architecture {architecture} among {count.entries}")
    path.write_bytes(library)
    return count


if __name__ == "__main__":
    import pathlib

    if len(sys.argv) < 3:
        sys.exit(f"usage: {sys.argv[0]} LIBRARY ARCHITECTURE [REGEX]: trims the library in place")
    result = trim(pathlib.Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3] if len(sys.argv) > 3 else "")
    print(f"{result.kept} of {result.entries} parts kept")
