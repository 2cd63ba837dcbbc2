"""Keeps one architecture's code of a library's CUDA kernels.

A library with kernels has a section `.nv_fatbin`: regions of a header and parts, each part the code of some kernels for one
architecture. Parts that are kept move to the front of their region, the size in the region's header shrinks, and
the rest becomes zeros, which pack to nothing. No byte outside the section moves, so that nothing else changes."""

import dataclasses
import re
import struct
import sys

MAGIC = 0xBA55ED50
ZSTD = b"\x28\xb5\x2f\xfd"
# Fused operators that only large language models use; the models that gpucheck exports have none of them.
LANGUAGE_MODELS = r"(?i)flash|paged|moe|fpA_intB|weight_only|GroupQuery|mamba|LinearAttention|rotary|matmul_?n_?bits|4bit|int4|fp4"


@dataclasses.dataclass
class Kept:
    """How many parts there are, and how many were kept."""

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
    raise ValueError(f"expected a section {name.decode()}, got none")


def kernels(part):
    """Names of the kernels in a part; empty where it does not say."""
    if part[:4] == ZSTD:
        import zstandard

        part = zstandard.ZstdDecompressor().decompressobj().decompress(part)
    return set(re.findall(rb"\.text\.([A-Za-z0-9_]+)", part))


def trim(path, architecture, without):
    """Trims a library in place. Parts all of whose kernels match `without` are dropped too; nothing matches ''."""
    library = bytearray(path.read_bytes())
    unwanted = re.compile(without.encode()) if without else None
    start, size = section(library, b".nv_fatbin")
    at, end, count = start, start + size, Kept()
    while at + 16 <= end:
        magic, _, header_size, region_size = struct.unpack_from("<IHHQ", library, at)
        if magic != MAGIC:
            at += 8
            continue
        part, region_end, keep = at + header_size, at + header_size + region_size, bytearray()
        if region_end > end:
            raise ValueError(f"a region at {at} ends beyond its section")
        while part < region_end:
            _, _, part_header, part_size = struct.unpack_from("<HHIQ", library, part)
            (made_for,) = struct.unpack_from("<I", library, part + 28)
            whole = part_header + part_size
            if whole < 32 or part + whole > region_end:
                raise ValueError(f"a part at {part} does not fit into its region")
            count.entries += 1
            wanted = made_for == architecture
            if wanted and unwanted:
                names = kernels(bytes(library[part + part_header : part + whole]))
                wanted = not names or not all(unwanted.search(name) for name in names)
            if wanted:
                keep += library[part : part + whole]
                count.kept += 1
            part += whole
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
