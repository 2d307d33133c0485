"""Writes a module of values for each .proto file that is named, beside it (`make proto`; see odradek_proto.messages).

python ops/proto/values.py proto odradek_proto/v1/admin.proto ...
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import textwrap
from pathlib import Path

from google.protobuf.descriptor_pb2 import DescriptorProto, FieldDescriptorProto, FileDescriptorProto, FileDescriptorSet

LINE = 117  # and two spaces and a sign before the comment
FIELD = FieldDescriptorProto
SCALARS = {
    FIELD.TYPE_BOOL: ("bool", "False"),
    FIELD.TYPE_BYTES: ("bytes", 'b""'),
    FIELD.TYPE_DOUBLE: ("float", "0.0"),
    FIELD.TYPE_STRING: ("str", '""'),
    FIELD.TYPE_INT32: ("int", "0"),
    FIELD.TYPE_INT64: ("int", "0"),
    FIELD.TYPE_SINT32: ("int", "0"),
    FIELD.TYPE_SINT64: ("int", "0"),
}
HEADER = '''"""Values of the messages of {name}. Written by `make proto`: change the .proto file instead."""

from __future__ import annotations

{imports}from odradek_proto.messages import Message
'''


def main(root: Path, files: list[str]) -> None:
    with tempfile.NamedTemporaryFile() as described:
        command = [sys.executable, "-m", "grpc_tools.protoc", "-I", str(root), "--include_source_info"]
        subprocess.run([*command, f"--descriptor_set_out={described.name}", *files], check=True, cwd=root.parent)
        found = FileDescriptorSet.FromString(Path(described.name).read_bytes())
    for file in found.file:
        path = root / file.name
        path.with_name(f"{path.stem}_messages.py").write_text(_module(file))


def _module(file: FileDescriptorProto) -> str:
    comments = {
        tuple(each.path): each.leading_comments or each.trailing_comments for each in file.source_code_info.location
    }
    text = ""
    for place, message in enumerate(file.message_type):
        text += f"\n\nclass {message.name}(Message, frozen=True):\n"
        said = comments.get((4, place), "")
        if said:
            text += _docstring(" ".join(said.split()))
        for number, field in enumerate(message.field):
            beside = " ".join(comments.get((4, place, 2, number), "").split())
            line = f"    {field.name}: {_type(message, field)}"
            if len(line) + len(beside) > LINE:
                text += textwrap.fill(beside, LINE, initial_indent="    # ", subsequent_indent="    # ") + "\n"
                beside = ""
            text += line + (f"  # {beside}" if beside else "") + "\n"
        if not message.field and not said:
            text += "    pass\n"
    used = [name for name in ("Mapping", "Sequence") if f"{name}[" in text]
    imports = f"from collections.abc import {', '.join(used)}\n\n" if used else ""
    return HEADER.format(name=file.name.rpartition("/")[2], imports=imports) + text


def _docstring(said: str) -> str:
    if len(said) + 10 <= LINE:
        return f'    """{said}"""\n\n'
    return f'    """{textwrap.fill(said, LINE - 4, subsequent_indent="    ")}\n    """\n\n'


def _type(message: DescriptorProto, field: FieldDescriptorProto) -> str:
    """The annotation and the default."""
    repeated = field.label == FIELD.LABEL_REPEATED
    name = field.type_name.rpartition(".")[2]
    entries = {entry.name: entry for entry in message.nested_type if entry.options.map_entry}
    if name in entries:
        key, value = (SCALARS[each.type][0] for each in entries[name].field)
        return f"Mapping[{key}, {value}] = {{}}"
    if field.type == FIELD.TYPE_MESSAGE:
        return f"Sequence[{name}] = ()" if repeated else f"{name} | None = None"
    kind, default = SCALARS[field.type]
    if repeated:
        return f"Sequence[{kind}] = ()"
    return f"{kind} | None = None" if field.proto3_optional else f"{kind} = {default}"


if __name__ == "__main__":
    main(Path(sys.argv[1]).resolve(), sys.argv[2:])
