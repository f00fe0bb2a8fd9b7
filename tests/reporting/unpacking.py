"""What the page holds, read back from its HTML alone."""

import base64
import json
import re

import numpy as np


def data_of(html):
    """The JSON in the page."""
    (text,) = re.findall(r'<script type="application/json" id="data">(.*?)</script>', html, re.S)
    return json.loads(text)


def unpacked(packed):
    """The table that was packed."""
    steps = np.frombuffer(base64.b64decode(packed["data"]), "<i2").reshape(packed["shape"])
    return steps * np.array(packed["units"])
