"""`dataclass` as in the standard library, but created in an eighth of the time: the standard library compiles the
source text of up to six methods per class, 0.4 ms, and each start creates two hundred classes. Here `__init__` is
compiled when the first object is created, and the other methods are closures. Fields and slots come from the standard
library, so `fields`, `replace` and `asdict` work."""

import dataclasses
from collections.abc import Callable
from operator import attrgetter
from reprlib import recursive_repr
from typing import TYPE_CHECKING, Any

__all__ = ["dataclass"]

_OMITTED = object()  # an argument whose default is made by a factory


def _dataclass(
    cls: type | None = None,
    *,
    frozen: bool = False,
    slots: bool = False,
    kw_only: bool = False,
    eq: bool = True,
    repr: bool = True,  # noqa: A002 - as in the standard library
) -> Any:
    """For type checkers this is `dataclasses.dataclass`; what is not offered here (`order`) needs that one."""
    if cls is None:
        return lambda cls: _dataclass(cls, frozen=frozen, slots=slots, kw_only=kw_only, eq=eq, repr=repr)
    own = set(vars(cls))
    own_hash = "__hash__" in own and not (vars(cls)["__hash__"] is None and "__eq__" in own)
    cls.__doc__ = cls.__doc__ or cls.__name__  # without one, the signature would be formatted, which is slow
    made: type = dataclasses.dataclass(init=False, repr=False, eq=False, slots=slots, kw_only=kw_only)(cls)
    methods: dict[str, Callable[..., Any]] = {"__init__": _first_init(made, frozen)}
    if repr:
        methods["__repr__"] = _repr_of(made)
    if eq:
        methods["__eq__"] = _eq_of(made)
    if frozen:
        methods |= _frozen_methods(made)
        if slots:
            methods |= {"__getstate__": _state_of, "__setstate__": _set_state}
    for name, method in methods.items():
        if name not in own:
            method.__name__, method.__qualname__ = name, f"{made.__qualname__}.{name}"
            setattr(made, name, method)
    if eq and not own_hash:
        made.__hash__ = _hash_of(made) if frozen else None  # type: ignore[assignment]
    return made


def _first_init(cls: type, frozen: bool) -> Callable[..., None]:
    """Replaces itself by the compiled method when it is called."""

    def init(self: object, *arguments: Any, **named: Any) -> None:
        compiled = _compiled_init(cls, frozen)
        cls.__init__ = compiled  # type: ignore[misc]
        compiled(self, *arguments, **named)

    return init


def _compiled_init(cls: type, frozen: bool) -> Callable[..., None]:
    known: dict[str, Any] = {"_omitted": _OMITTED, "_set": object.__setattr__}
    positional, named, lines = ["self"], ["*"], []
    for field in dataclasses.fields(cls):
        name, value = field.name, field.name
        parameter = name
        if field.default_factory is not dataclasses.MISSING:
            known[f"_make_{name}"] = field.default_factory
            parameter = f"{name}=_omitted"
            value = f"_make_{name}() if {name} is _omitted else {name}" if field.init else f"_make_{name}()"
        elif field.default is not dataclasses.MISSING:
            known[f"_default_{name}"] = field.default
            parameter = f"{name}=_default_{name}"
            value = name if field.init else f"_default_{name}"
        elif not field.init:
            continue  # `__post_init__` sets it
        if field.init:
            (named if field.kw_only else positional).append(parameter)
        lines.append(f"_set(self, {name!r}, {value})" if frozen else f"self.{name} = {value}")
    if hasattr(cls, "__post_init__"):
        lines.append("self.__post_init__()")
    parameters = ", ".join([*positional, *(named if len(named) > 1 else [])])
    exec(f"def __init__({parameters}):\n " + "\n ".join(lines or ["pass"]), known)
    compiled: Callable[..., None] = known["__init__"]
    compiled.__qualname__ = f"{cls.__qualname__}.__init__"
    compiled.__module__ = cls.__module__
    return compiled


def _repr_of(cls: type) -> Callable[[Any], str]:
    names = [field.name for field in dataclasses.fields(cls) if field.repr]

    def text(self: Any) -> str:
        return f"{type(self).__qualname__}({', '.join([f'{name}={getattr(self, name)!r}' for name in names])})"

    return recursive_repr()(text)


def _eq_of(cls: type) -> Callable[[Any, object], bool]:
    values = _values_of([field.name for field in dataclasses.fields(cls) if field.compare])

    def equal(self: Any, other: object) -> bool:
        return values(self) == values(other) if type(other) is type(self) else NotImplemented

    return equal


def _hash_of(cls: type) -> Callable[[Any], int]:
    hashed = [field for field in dataclasses.fields(cls) if (field.compare if field.hash is None else field.hash)]
    values = _values_of([field.name for field in hashed])

    def hash_of(self: Any) -> int:
        return hash(values(self))

    return hash_of


def _values_of(names: list[str]) -> Callable[[Any], tuple[Any, ...]]:
    if len(names) > 1:
        return attrgetter(*names)
    return lambda value: tuple([getattr(value, name) for name in names])


def _frozen_methods(cls: Any) -> dict[str, Callable[..., Any]]:
    names = {field.name for field in dataclasses.fields(cls)}

    def set_attribute(self: object, name: str, value: object) -> None:
        if type(self) is cls or name in names:
            raise dataclasses.FrozenInstanceError(f"cannot assign to field {name!r}")
        super(cls, self).__setattr__(name, value)

    def delete_attribute(self: object, name: str) -> None:
        if type(self) is cls or name in names:
            raise dataclasses.FrozenInstanceError(f"cannot delete field {name!r}")
        super(cls, self).__delattr__(name)

    return {"__setattr__": set_attribute, "__delattr__": delete_attribute}


def _state_of(self: Any) -> list[Any]:
    """For `pickle` and `copy`, which would otherwise set the attributes one by one."""
    return [getattr(self, field.name) for field in dataclasses.fields(self)]


def _set_state(self: Any, state: list[Any]) -> None:
    for field, value in zip(dataclasses.fields(self), state, strict=True):
        object.__setattr__(self, field.name, value)


if TYPE_CHECKING:
    from dataclasses import dataclass as dataclass
else:
    dataclass = _dataclass
