"""Blocks that a device drafts and other sides verify: what three of the modes share."""
