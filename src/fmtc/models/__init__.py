"""Fitted models: one file and one class for each kind, with one interface. Nobody else asks which kind a model is."""

from collections.abc import Mapping

from .anchors import AnchorModel
from .base import ClientModel, Member, Parts, Presence, Units
from .graph import GraphModel, project
from .mixture import Frame, MixtureModel

KINDS: dict[str, type[ClientModel]] = {kind.kind: kind for kind in (AnchorModel, GraphModel, MixtureModel)}


def kind_of(models: Mapping[str, ClientModel]) -> str:
    """The kind of model that a run came to: of a private run the public one, even where a silo stayed alone."""
    found = list(models.values())
    return next((model.kind for model in found if model.is_public), found[0].kind)


__all__ = [
    "KINDS",
    "AnchorModel",
    "ClientModel",
    "Frame",
    "GraphModel",
    "Member",
    "MixtureModel",
    "Parts",
    "Presence",
    "Units",
    "kind_of",
    "project",
]
