"""What a proxy promises: the record that travels with it, its sentences, and (in `making`) how it comes about.

The statistics behind it are in `promise`, which knows arrays only. The record and its sentences lie below `proxy`,
which holds one; `making` lies above it, since it runs and refits proxies.
"""

from feasibly.certificate.record import AnswerPromise, Certificate, CertificateError, Cross, Rule
from feasibly.certificate.sentences import Sentence

__all__ = ["AnswerPromise", "Certificate", "CertificateError", "Cross", "Rule", "Sentence"]
