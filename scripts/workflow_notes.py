"""What the notes in the example workflows say. A blank line parts paragraphs; other line ends are spaces."""

from __future__ import annotations

TEXT = {
    "demo": """
## Fewer model calls, the same kind of picture

**Speculative KSampler** takes KSampler's place. It drafts several steps ahead, lets the model judge all of them
in one call, and keeps or corrects each without bias.

Press **Run**, watch the panel on the sampler, and change the words: dog face, slice of pizza, rocket.
""",
    "draft_model": """
## A draft model

A second, smaller network (**Load Draft Model**) drafts the next steps; the main model judges all of them in one
call.

Its calls come one after the other, so it must be many times faster than the main model to pay. Disconnect it
and compare the seconds: drafting without it costs nothing.
""",
    "img2img": """
## Image to image

The second sampler starts from the first one's picture: denoise 0.6 keeps its shape and lets the second prompt
change the rest.

For a photo of your own: LoadImage and VAEEncode in place of the first sampler.
""",
    "inpaint": """
## Inpainting

The mask is 1 where the second sampler may paint, here the right half; the rest stays as it was. Every drafted
latent is masked at its own noise level, exactly as the stock sampler would.
""",
    "custom": """
## SamplerCustomAdvanced

**Speculative Sampler** stands where KSamplerSelect stands; guider, sigmas and noise stay as they are.

Its report is filled when the sampler has run. **Speculation Report** therefore takes the latent too, on its
input `after`.
""",
    "same_distribution": """
## The same distribution

Sixteen pictures by **Speculative KSampler**, sixteen by the stock **KSampler**, of one prompt that leaves much
open.

Single pictures differ, as those of two seeds do. What does not differ is how often each kind of face comes up:
no look at the pictures can tell which sixteen are whose.
""",
    "sd35": """
On a GPU that one picture of this size fills, `auto` notices after timing a few calls, samples plainly and says
so. Compare the seconds with plain `euler` at 20 to 28 steps.
""",
    "medium": """
## SD3.5 Medium

Needs `sd3.5_medium_incl_clips_t5xxlfp8scaled.safetensors` in `models/checkpoints`.

No second model: the drafts come from Medium's own earlier answers.
""",
    "large": """
## SD3.5 Large

Needs `sd3.5_large.safetensors` in `models/checkpoints` and the three text encoders in `models/text_encoders`.

With weights streamed from main memory (`--lowvram`) a call on several latents costs little more than one: there
speculation pays most.
""",
    "large_draft": """
## SD3.5 Large with a draft model

Needs `sd3.5_large.safetensors` in `models/checkpoints`, `sd3.5_medium.safetensors` in
`models/diffusion_models`, and the text encoders.

Medium drafts for Large. Its calls come one after the other, so it seldom pays; the report says what it took.
Disconnect it to compare.
""",
}

NOTES = {
    name: "\n\n".join(" ".join(part.split()) for part in text.strip().split("\n\n")) for name, text in TEXT.items()
}
